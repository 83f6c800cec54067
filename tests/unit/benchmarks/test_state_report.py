"""The benchmark of state: a page from recorded figures, whole or in part."""

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.page import shown
from benchmarks.state.report import (
    by_backend_and_size,
    checkpoint_text,
    newest,
    throughput_text,
    write_page,
)

SIZED = {f"heap_10mb_{name}": 1.5 for name in ("restore_s", "half_s")} | {
    f"heap_10mb_savepoint_{name}": 2.5 for name in ("restore_s", "half_s")
}
CHECKPOINT = {
    f"{backend}_10mb_{turn}_{name}": 0.25
    for backend in ("heap", "rocksdb_full")
    for turn in ("first", "second")
    for name in ("pause_ms", "write_s", "written_mb")
}
CELL = {
    "megabytes": 10,
    "way": "unaligned",
    "checkpoints": 3,
    "duration_ms": 440,
    "duration_ms_max": 511,
    "pause_ms": 3,
    "start_delay_ms": 372,
    "alignment_ms": 2,
    "write_ms": 104,
    "in_flight_mb": 15.6,
}
FIGURES: dict[str, dict[str, Any]] = {
    "access": {
        f"{backend}_{name}_us": 0.5
        for backend in ("heap", "rocksdb")
        for name in ("write", "read", "read_modify_write", "append")
    },
    "checkpoint": CHECKPOINT,
    "increments": {
        "cells": [
            {
                "setting": "as it is",
                "megabytes": 10,
                "written_mb": [12.0, 1.5, 12.5],
                "size_mb": [12.0, 13.5, 12.5],
                "read_us": 7.5,
                "scan_s": 0.25,
                "restore_s": 0.5,
            }
        ]
    },
    "restore": SIZED,
    "back_pressure": {
        "cells": [
            CELL,
            {"megabytes": 10, "way": "aligned", "failure": "none was complete within 60 s"},
        ]
    },
    "throughput": {
        "cells": [
            {
                "backend": "hashmap",
                "interval_ms": 500,
                "without_krecords_per_s": 622.8,
                "with_krecords_per_s": 600.0,
                "share_percent": 96.3,
                "shares_percent": [96.3],
                "checkpoints": [7],
            }
        ]
    },
}
CHAPTERS = {
    "back_pressure": "## Checkpoints of a job under back pressure",
    "checkpoint": "## Checkpoints of one task, by the state's size",
    "increments": "## Increments one after another",
    "throughput": "## Throughput with checkpoints",
    "restore": "## Restore",
    "access": "## Heap against RocksDB",
}


def runs(*questions: str, load: float = 0.3) -> dict[str, dict[str, Any]]:
    return {
        question: {
            "date": "2026-01-02",
            "machine": "2 x CPU",
            "load_average_before": load,
            "figures": FIGURES[question],
        }
        for question in questions
    }


def test_a_whole_run_gives_every_chapter() -> None:
    page = write_page(runs(*FIGURES), [f"state_{question}" for question in FIGURES])
    assert [line for line in page.splitlines() if line.startswith("## ")] == list(CHAPTERS.values())
    assert "{" not in page
    assert "it is 0.44 s" in page
    assert "none was complete within 60 s" in page
    assert "rocksdb_full, 10 MB" in page
    assert "| 10 MB, as it is | 12 | 1.5, 12.5 | 7 | 13.5 | 7.5 | 0.25 | 0.5 |" in page


@pytest.mark.parametrize(
    ("turns", "share", "told"),
    [
        ([99.6, 122.5, 64.7], 99.6, "not decided (99.6) | 2 of 3"),
        ([95.0, 104.0, 97.0], 97.0, "not decided (97) | 3 of 3"),
        ([95.0, 104.0, 97.0, 90.0], 96.0, "96 | 4 of 4"),
        ([70.0, 75.0, 72.0, 89.9], 73.5, "73.5 | 0 of 4"),
        ([95.0, 104.0, 87.0, 97.0, 96.0, 95.0, 99.0], 96.0, "96 | 6 of 7"),
        ([95.0, 104.0, 87.0, 89.0, 96.0, 95.0, 99.0], 95.0, "not decided (95) | 5 of 7"),
        ([80.0] * 23 + [100.0] * 37, 100.0, "100 | 37 of 60"),
        ([80.0] * 24 + [100.0] * 36, 100.0, "not decided (100) | 36 of 60"),
    ],
)
def test_turns_decide_where_chance_would_seldom_do_it(
    turns: list[float], share: float, told: str
) -> None:
    (cell,) = FIGURES["throughput"]["cells"]
    text = throughput_text(
        {"cells": [{**cell, "share_percent": share, "shares_percent": turns}]}, []
    )
    assert f"| {told} |" in text


@pytest.mark.parametrize("question", FIGURES)
def test_one_question_alone_is_a_page_too(question: str) -> None:
    page = write_page(runs(question), [])
    assert [line for line in page.splitlines() if line.startswith("## ")] == [CHAPTERS[question]]
    assert ("(not drawn)" in page) == (question != "increments")


def test_a_busy_machine_is_told() -> None:
    assert "The machine was busy" in write_page(runs("access", "restore", load=4.0), [])
    assert "The machine was busy" not in write_page(runs("access", "restore"), [])


def test_each_section_names_the_machine_day_and_load_of_its_own_figures_where_they_differ() -> None:
    found = runs("throughput", "restore", "access")
    found["restore"] |= {"date": "2026-01-01", "machine": "4 x CPU"}
    del found["restore"]["load_average_before"]
    found["restore"]["load_average"] = 1.5
    found["access"]["load_average_before"] = 4.0
    _, throughput, restore, access = write_page(found, []).split("## ")
    assert "Measured 2026-01-02 on 2 x CPU; load 0.3 before it.\n" in throughput
    assert "Measured 2026-01-01 on 4 x CPU; load 1.5 at its end, its own part included." in restore
    assert "load 4.0 before it. **The machine was busy.**" in access


def test_the_page_names_one_machine_once() -> None:
    assert write_page(runs("access", "restore"), []).count("Measured") == 1


def test_flat_figures_become_rows_of_a_backend_and_a_size() -> None:
    assert by_backend_and_size(CHECKPOINT)[1]["backend"] == "rocksdb_full"
    assert by_backend_and_size({"rocksdb_1000mb_half_s": 2.0, "else": 1.0}) == [
        {"backend": "rocksdb", "megabytes": 1000, "half_s": 2.0}
    ]


def test_the_newest_line_of_each_question_counts(tmp_path: Path) -> None:
    lines = [json.dumps({"figures": {"run": number}}) for number in (1, 2)]
    (tmp_path / "state_restore.jsonl").write_text("\n".join(lines) + "\n\n")
    assert newest(tmp_path) == {"restore": {"figures": {"run": 2}}}


def test_three_digits_are_enough() -> None:
    assert [shown(cell) for cell in (1234.5, 12.345, 0.00123, 7, "x")] == [
        "1,234",
        "12.3",
        "0.00123",
        "7",
        "x",
    ]


@pytest.mark.parametrize(
    ("recorded", "sentence"),
    [
        ({"changed_share": 0.01}, "only 1 % of the keys is written, over and over."),
        ({}, "comes after a tenth of the keys was written again."),
    ],
)
def test_the_page_says_how_many_keys_changed_between_two_checkpoints(
    recorded: dict[str, float], sentence: str
) -> None:
    assert sentence in checkpoint_text(CHECKPOINT | recorded, [])
