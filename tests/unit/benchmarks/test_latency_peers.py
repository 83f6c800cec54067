"""Other engines beside Headrace in the benchmark of latency: how they are asked, in turns, and what the page says."""

import array
import io
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.keyed_latency.peers import noise
from benchmarks.keyed_latency.peers import turns as turns_module
from benchmarks.keyed_latency.peers.noise import OthersShare
from benchmarks.keyed_latency.peers.registry import CONTENDERS, Contender, contenders_of
from benchmarks.keyed_latency.peers.serving import Asked, serve, warm
from benchmarks.keyed_latency.peers.turns import Plan, Turns, summary
from benchmarks.keyed_latency.peers_text import peers_text
from benchmarks.nexmark.peers.turns import PeerFailedError

ASKED = Asked(
    rate=20_000,
    seconds=4.5,
    warm_up_seconds=1.5,
    keys=1000,
    parallelism=2,
    checkpoint_interval_ms=500,
    buffer_timeout_ms=0,
    target_ms=None,
    out=Path("/scratch/latencies"),
)


def test_a_program_reads_what_it_is_asked_for() -> None:
    assert Asked.of(ASKED.line()) == ASKED


def test_latencies_of_records_that_were_due_in_the_warm_up_are_left_out() -> None:
    seen = [(10_000_000_000, 7_000), (11_500_000_000, 8_000), (11_499_999_999, 9_000)]
    assert warm(seen, 1.5) == [8]
    assert warm([], 1.5) == []


def test_a_turn_that_fails_is_told_and_the_next_one_is_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    line = ASKED.line().replace(str(ASKED.out), str(tmp_path / "latencies"))
    monkeypatch.setattr(sys, "stdin", io.StringIO(f"{line}\n{line}\n"))
    answers = iter([ValueError("no\nroom"), [1, 2, 3]])

    def run(asked: Asked) -> list[int]:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    serve(run)
    said = capsys.readouterr().out.splitlines()
    assert said == ["latency: ready", "latency: ValueError: no room", "latency: done"]
    assert array.array("q", (tmp_path / "latencies").read_bytes()).tolist() == [1, 2, 3]


class Scripted:
    """Stands for an engine's program: each turn takes as many milliseconds as the last, and one more."""

    asked: list[str] = []  # noqa: RUF012 (of all engines, in the order of their turns)

    def __init__(self, engine: Any, scratch: Path) -> None:
        self.name = engine.name
        self.latency_us = 0

    def __enter__(self) -> "Scripted":
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def await_ready(self) -> None:
        if self.name == "absent":
            raise PeerFailedError("no javac")

    def ask(self, asked: Asked) -> Any:
        self.asked.append(f"{self.name} {asked.buffer_timeout_ms}")
        self.latency_us += 1000
        if self.name == "weak" and self.latency_us > 1000:
            raise PeerFailedError("too slow")
        return np.full(10, self.latency_us)


def test_contenders_take_turns_and_one_that_fails_has_no_more(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(turns_module, "EngineProgram", Scripted)
    monkeypatch.setattr(Scripted, "asked", [])
    made = CONTENDERS[0]

    def contender(name: str, timeout_ms: int) -> Contender:
        engine = type(made.engine)(name, "none", "headrace")
        return Contender(engine, name, "none", buffer_timeout_ms=timeout_ms)

    warmed: list[list[str]] = []
    plan = Plan(ASKED, 2, lambda: warmed.append(list(Scripted.asked)), lambda _: None)
    contenders = [contender("good", 0), contender("good", 5), contender("weak", 0)]
    turns = Turns(plan, [*contenders, contender("absent", 0)])
    found = turns.run(tmp_path)
    assert warmed == [["good 0", "weak 0"]]
    assert Scripted.asked[2:] == ["good 0", "good 5", "weak 0", "good 0", "good 5"]
    assert turns.failed == {"weak-timeout-0": "too slow", "absent-timeout-0": "no javac"}
    assert [turn["p50_ms"] for turn in found["good-timeout-0"]["turns"]] == [2, 4]
    assert found["good-timeout-5"]["p99_ms"] == 4


def test_engines_take_part_by_name_and_names_tell_settings_apart() -> None:
    assert {each.engine.name for each in contenders_of(["flink"])} == {"flink"}
    assert len({each.name for each in CONTENDERS}) == len(CONTENDERS)


@pytest.mark.parametrize(("own", "percent"), [(150, 0.0), (60, 45.0), (-20, None)])
def test_what_we_take_ourselves_is_not_counted_as_taken_by_others(
    monkeypatch: pytest.MonkeyPatch, own: int, percent: float | None
) -> None:
    ticks = iter([(1000, 300, 40), (1200, 450, 40 + own)])
    monkeypatch.setattr(noise, "_times", lambda: next(ticks))
    with OthersShare() as others:
        pass
    assert others.percent == percent


def test_where_the_system_does_not_count_ticks_nothing_is_said_of_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(noise, "_times", lambda: (0, 0, 0))
    with OthersShare() as others:
        pass
    assert others.percent is None


def turn(p99_ms: float, others_percent: float | None) -> dict[str, Any]:
    percentiles = {"p50_ms": 1.0, "p90_ms": 2.0, "p99_ms": p99_ms, "p99.9_ms": 9.0}
    return {**percentiles, "others_percent": others_percent}


def cell(others_percent: float | None, failed: dict[str, str]) -> dict[str, Any]:
    turns = [turn(4.0, others_percent), turn(6.0, others_percent)]
    return {
        "rate_per_second": 20_000,
        "date": "2026-01-02",
        "machine": "two cores",
        "turns": 2,
        "seconds": 3.0,
        "keys": 1000,
        "packages": ["bytewax==1"],
        "checkpoint_interval_ms": 500,
        "contenders": {"headrace-timeout-0": summary(turns)},
        "failed": failed,
    }


def test_the_page_gives_medians_turns_noise_and_guarantees() -> None:
    text = peers_text(cell(3.0, {}), [])
    row = "| Headrace, timeout 0 ms | 1.0 | 5.0 | 9.0 | 4.0, 6.0 | 3 | state exactly once"
    assert row in text
    assert "every 500 ms |" in text
    assert "absolute figures" not in text
    assert "| – |" in peers_text(cell(None, {}), [])


def test_the_page_owns_up_to_a_busy_machine_and_names_who_failed() -> None:
    text = peers_text(cell(40.0, {"flink-timeout-0": "no javac"}), [])
    assert "up to 40 %: absolute figures mean little" in text
    assert "- Flink, timeout 0 ms failed: no javac" in text
