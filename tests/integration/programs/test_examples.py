"""Examples that need no Spark of their own, run on a cluster in this process."""

import runpy
from pathlib import Path

import pytest

from headrace import StreamExecutionEnvironment

EXAMPLES = Path(__file__).parents[3] / "examples"


def test_requests_per_minute_prints_the_failures_of_each_minute(
    env: StreamExecutionEnvironment, capsys: pytest.CaptureFixture[str]
) -> None:
    runpy.run_path(str(EXAMPLES / "requests_per_minute.py"), run_name="__main__")
    lines = [line.partition("> ")[2] for line in capsys.readouterr().out.splitlines()]
    failed = [240, 240, 240, 241, 240]
    assert sorted(lines) == sorted(
        line
        for minute, count in enumerate(failed)
        for line in (
            f"minute {minute}: {count} failed",
            f"minute {minute}: {2400 - count} served",
        )
    )


def test_late_departures_by_rule_prints_what_its_rules_find(
    env: StreamExecutionEnvironment, capsys: pytest.CaptureFixture[str]
) -> None:
    runpy.run_path(str(EXAMPLES / "late_departures_by_rule.py"))
    lines = [line.partition("> ")[2] for line in capsys.readouterr().out.splitlines()]
    assert sorted(lines) == [
        "0001 EWR: United is 20 min late",
        "0006 JFK: Delta is 90 min late",
        "0009 EWR: Delta is 61 min late",
    ]


def test_every_reading_once_finds_no_reading_twice(
    env: StreamExecutionEnvironment,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(EXAMPLES / "every_reading_once.py"))
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("6,000 readings, 6,000 of them different, in ")
