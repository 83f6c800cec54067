"""JsonLinesReporter: a file per process that does not grow without end."""

import json
from pathlib import Path
from typing import Any

import pytest

from headrace.core.errors import ConfigurationError
from headrace.metrics.readings import MetricReport
from headrace.metrics.reporters.json_lines import JsonLinesReporter
from tests.unit.metrics.reporters.reports import (
    SPAN,
    config,
    process_reading,
    report,
    task_reading,
)


def opened(folder: Path, process_name: str = "tm-1", **values: str) -> JsonLinesReporter:
    settings = {"directory": str(folder), **{key.replace("_", "-"): one for key, one in values.items()}}  # fmt: skip
    reporter = JsonLinesReporter(config(settings, process_name))
    reporter.open(lambda: MetricReport(0, ()))
    return reporter


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_each_group_of_a_report_is_a_line(tmp_path: Path) -> None:
    reporter = opened(tmp_path / "new" / "folder")
    reporter.report(
        report(
            process_reading({"Status.JVM.Threads.Count": 3}),
            ended=[task_reading({"numRecordsIn": 9})],
        )
    )
    reporter.report_spans([SPAN])
    process, task, span = lines(tmp_path / "new" / "folder" / "tm-1.jsonl")
    assert process == {
        "timestamp": 5_000,
        "scope": "h.taskmanager.tm-1",
        "variables": {"host": "h", "tm_id": "tm-1"},
        "metrics": {"Status.JVM.Threads.Count": 3},
        "ended": False,
    }
    assert (task["metrics"], task["ended"]) == ({"numRecordsIn": 9}, True)
    assert (span["span"], span["duration_ms"]) == ("Checkpoint", 250)


def test_a_file_that_is_full_makes_room_for_another_and_the_one_before_goes(
    tmp_path: Path,
) -> None:
    reporter = opened(tmp_path, max_size="1kb")
    for count in range(200):
        reporter.report(report(task_reading({"numRecordsIn": count})))
    files = sorted(tmp_path.iterdir())
    assert [file.name for file in files] == ["tm-1.jsonl", "tm-1.jsonl.1"]
    assert all(file.stat().st_size < 2_048 for file in files)
    counts = [line["metrics"]["numRecordsIn"] for file in reversed(files) for line in lines(file)]
    assert counts == list(range(counts[0], 200))


def test_the_name_of_a_process_leads_nowhere_else(tmp_path: Path) -> None:
    assert opened(tmp_path, "../../h:1/x").path == tmp_path / "_.._h_1_x.jsonl"


def test_a_value_that_is_no_number_is_null(tmp_path: Path) -> None:
    reporter = opened(tmp_path)
    reporter.report(report(task_reading({"numRecordsIn": float("nan")})))
    assert lines(reporter.path)[0]["metrics"] == {"numRecordsIn": None}


def test_without_a_folder_the_setting_is_named() -> None:
    with pytest.raises(ConfigurationError, match=r"metrics\.reporter\.mine\.directory"):
        JsonLinesReporter(config())
