"""The page of plain Python functions: the newest figures, and whether they reach the aim."""

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.python_report import ENGINES, LEAST, STEPS, newest, write_page


def function(keys: int, ratio: float) -> dict[str, Any]:
    figures = {
        "keys": keys,
        "headrace_records_per_second": 1000.0 * ratio,
        "pyflink_records_per_second": 1000.0,
        "ratio": ratio,
        "pyflink_mode": "process",
    }
    for name in ENGINES:
        figures |= {f"{name}_{what}": least for what, least in LEAST.items()}
    return {"date": "2026-01-02", "machine": "two cores", "figures": figures}


def start() -> dict[str, Any]:
    figures = {
        f"{who}_{step}_s": moment + 0.5 * place
        for who, moment in (("headrace", 2.0), ("spark", 4.0))
        for place, step in enumerate(STEPS)
    }
    figures |= {"headrace_ratio": 1.75, "repeats": 3}
    return {
        "date": "2026-01-02",
        "machine": "two cores",
        "load_average_before": 0.25,
        "figures": figures,
    }


def test_of_several_runs_the_newest_counts_for_each_number_of_keys(tmp_path: Path) -> None:
    alone = function(10, 9)
    del alone["figures"]["pyflink_mode"]  # without PyFlink, or perhaps with its threads
    lines = [function(100, 6), function(10, 7), function(10, 8), alone]
    (tmp_path / "keyed_function.jsonl").write_text(
        "".join(json.dumps(line) + "\n" for line in lines)
    )
    functions, started = newest(tmp_path)
    assert [(line["figures"]["keys"], line["figures"]["ratio"]) for line in functions] == [
        (10, 8),
        (100, 6),
    ]
    assert started is None


@pytest.mark.parametrize(("ratio", "verdict"), [(5.0, "reached"), (4.9, "missed")])
def test_the_least_ratio_decides_whether_the_aim_is_reached(ratio: float, verdict: str) -> None:
    page = write_page([function(10, 20), function(100, ratio)], None, [])
    assert f"times PyFlink: {verdict}, with {ratio:.1f} at least" in page
    behind = "(1,000,000 records, 3 turns, 10 cp)"
    assert f"| 100 | {1000 * ratio:,.0f} {behind} | 1,000 {behind} | {ratio:.3g} |" in page


@pytest.mark.parametrize("lacking", [f"{name}_{what}" for name in ENGINES for what in LEAST])
def test_there_is_no_multiple_where_one_side_has_too_little_of_anything(lacking: str) -> None:
    line = function(100, 7.7)
    line["figures"][lacking] -= 1
    page = write_page([function(10, 20), line], None, [])
    name, _, what = lacking.partition("_")
    assert f"| none ({ENGINES[name]}: {what}) |" in page
    assert "7.7" not in page.replace("7,700", "") and "not known yet" in page


def test_who_was_not_measured_has_no_row_in_the_table_of_the_start() -> None:
    page = write_page([], start(), [])
    assert "| Headrace | 2 | 2.5 | 3 | 3.5 | 4 | 1.75 |" in page
    assert "| Spark Structured Streaming | 4 | 4.5 | 5 | 5.5 | 6 |  |" in page
    assert "after `headrace warm-up` |" not in page
    assert "load 0.25 before it" in page


def test_the_start_has_no_multiple_of_a_single_turn() -> None:
    once = start()
    once["figures"]["repeats"] = 1
    page = write_page([], once, [])
    assert "1.75" not in page and "| 4 | too few turns |" in page and "medians of 1 turns" in page
