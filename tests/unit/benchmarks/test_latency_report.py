"""The benchmark of latency: figures of laps, and the page that is made of them."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.keyed_latency.program import Lap, latency_figures, records_per_second, warm_laps
from benchmarks.keyed_latency.report import read_cells, section_of, write_page

SECOND_NS = 1_000_000_000
CIRCUMSTANCES = {
    "checkpoint_interval_ms": 500,
    "parallelism": 2,
    "load_average_before": 0.1,
    "date": "2026-01-02",
    "machine": "two cores",
}


def lap(
    subtask_index: int, start_s: float, seconds: float, count: int, latency_us: int = 1000
) -> Lap:
    started_ns = int(start_s * SECOND_NS)
    latencies = np.full(count, latency_us)
    return Lap(subtask_index, started_ns, started_ns + int(seconds * SECOND_NS), latencies)


def cell(section: str, p50_ms: float, p99_ms: float, **which: int) -> dict[str, Any]:
    figures = {
        "section": section,
        "rate_per_second": 20_000,
        "p50_ms": p50_ms,
        "p99_ms": p99_ms,
        "p99.9_ms": 2 * p99_ms,
        "max_records_per_second": 123_456,
    }
    return {**figures, **CIRCUMSTANCES, **which}


def test_rates_of_subtasks_that_run_side_by_side_are_added_up() -> None:
    laps = [
        lap(0, 0, 0.5, 1000),
        lap(1, 0, 0.5, 500),
        lap(0, 0.5, 0.5, 1000),
        lap(1, 0.5, 0.5, 500),
    ]
    assert records_per_second(laps) == pytest.approx(3000)


def test_laps_that_began_during_the_warm_up_are_left_out() -> None:
    laps = [lap(0, 100, 0.5, 1), lap(1, 102.9, 0.5, 1), lap(0, 103, 0.5, 1)]
    assert warm_laps(laps, 3) == laps[2:]
    assert warm_laps([], 3) == []


def test_percentiles_are_of_all_records_together() -> None:
    figures = latency_figures([lap(0, 0, 1, 980, 1000), lap(1, 0, 1, 20, 50_000)])
    assert figures["records"] == 1000
    assert (figures["p50_ms"], figures["p99_ms"], figures["max_ms"]) == (1.0, 50.0, 50.0)


def test_of_several_runs_each_cell_counts_as_the_last_one_gave_it(tmp_path: Path) -> None:
    file = tmp_path / "results.jsonl"
    runs = [
        {"records": 1, "p50_ms": 9.9},  # kept before there were sections
        cell("timeouts", 5, 9, buffer_timeout_ms=0),
        cell("timeouts", 4, 8, buffer_timeout_ms=-1),
        cell("timeouts", 1, 2, buffer_timeout_ms=0),
    ]
    lines = [{"date": "2026-01-02", "machine": "two cores", "figures": run} for run in runs]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    cells = section_of(read_cells(file), "timeouts")
    assert [(one["buffer_timeout_ms"], one["p50_ms"]) for one in cells] == [(0, 1), (-1, 4)]


@pytest.mark.parametrize(
    ("p50_ms", "p99_ms", "verdict"), [(1.9, 5.9, "reached"), (2.1, 5, "missed")]
)
def test_the_page_says_whether_the_aim_is_reached(
    p50_ms: float, p99_ms: float, verdict: str
) -> None:
    cells = [
        cell("timeouts", p50_ms, p99_ms, buffer_timeout_ms=1),
        cell("timeouts", 50, 100, buffer_timeout_ms=100),
    ]
    page = write_page(cells, [])
    assert f"It is {verdict}: {p50_ms:.1f} and {p99_ms:.1f} ms with a timeout of 1 ms." in page
    assert f"| 1 | {p50_ms:.1f} | {p99_ms:.1f} | {2 * p99_ms:.1f} | 123,456 |" in page


def test_a_target_may_reach_the_aim_too_at_the_rate_that_it_is_for() -> None:
    cells = [
        cell("timeouts", 1, 7, buffer_timeout_ms=0),
        cell("governed", 1.9, 4.9, target_ms=5),
        {**cell("governed", 1.5, 4.1, target_ms=5), "rate_per_second": 2_000},
    ]
    assert "It is reached: 1.9 and 4.9 ms with a target of 5 ms." in write_page(cells, [])
    assert "It is missed: 1.0 and 7.0 ms with a timeout" in write_page([cells[0], cells[2]], [])


def test_the_page_names_the_targets_that_are_not_held() -> None:
    cells = [
        cell("governed", 10, 21, target_ms=20),
        cell("governed", 4, 9, target_ms=5),
    ]
    assert "1 of 2 targets are held" in write_page(cells, [])
    assert "Not held: 5 ms at 20,000/s (9.0 ms)." in write_page(cells, [])
    assert "stays within a tenth of every target" in write_page(cells[:1], [])


@pytest.mark.parametrize(("target_ms", "is_below"), [(5, True), (7, False), (20, False)])
def test_the_page_says_which_targets_are_below_what_the_way_takes_where_nothing_is_held(
    target_ms: int, is_below: bool
) -> None:
    cells = [
        cell("timeouts", 2, 7.1, buffer_timeout_ms=0),
        cell("governed", 4, 9, target_ms=target_ms),
    ]
    assert (f"below that ({target_ms} ms)" in write_page(cells, [])) is is_below
    assert "below that" not in write_page(cells[1:], [])


def test_a_busy_machine_is_owned_up_to() -> None:
    quiet = cell("timeouts", 1, 2, buffer_timeout_ms=0)
    assert "busy" not in write_page([quiet], [])
    assert "busy (load 2.5)" in write_page([{**quiet, "load_average_before": 2.5}], [])
