"""Points of reference in the report of the network: met or not, and why not."""

from collections.abc import Iterator
from typing import Any

import pytest

from benchmarks.network import matrix
from benchmarks.network.endpoints import RowMaker
from benchmarks.network.references import (
    Point,
    barrier_points,
    cost_points,
    disk_points,
    memory_point,
    neighbour_points,
    peak_points,
    raw_points,
    reference_table,
)
from benchmarks.network.report import reason_of
from headrace.network.writers.partition_buffer import ChannelShare, PartitionBuffer


def cell(channels: int, timeout_ms: int, mrows_per_s: float, **more: Any) -> dict[str, Any]:
    keys = {"carrier": "unix", "channels": channels, "row_bytes": 200, "timeout_ms": timeout_ms}
    return {**keys, "mrows_per_s": mrows_per_s, "mb_per_s": 200 * mrows_per_s, **more}


@pytest.mark.parametrize(("rate", "is_met"), [(7.5, True), (7.4, False)])
def test_a_timeout_of_a_millisecond_is_held_against_the_best_one(rate: float, is_met: bool) -> None:
    (point,) = peak_points([cell(1, 1, rate), cell(1, 100, 9.0), cell(1, -1, 10.0)])
    assert point.is_met is is_met


def test_cells_below_half_of_raw_sockets_are_named() -> None:
    cells = [cell(1, -1, 1.0, share_percent=80.0), cell(16, -1, 1.0, share_percent=20.0)]
    (point,) = raw_points(cells)
    assert point.is_met is False
    assert "20.0 to 80.0 %; below with 16 channels" in point.found


def test_neighbours_are_told_by_load_with_who_costs_them_more() -> None:
    rows = [
        {"harm": "garbage", "load": "throttled", "share_percent": 99.0},
        {"harm": "garbage", "load": "saturated", "share_percent": 85.0},
    ]
    points = list(neighbour_points({"mischief": rows}))
    assert [point.is_met for point in points] == [True, False]
    assert points[1].found == "85.0 % at least; below: garbage"


def test_a_share_that_would_be_rounded_up_to_its_aim_is_told_as_it_is() -> None:
    row = {"harm": "skipping", "load": "saturated", "share_percent": 89.5}
    (point,) = neighbour_points({"mischief": [row]})
    assert point.found == "89.5 % at least; below: skipping" and point.is_met is False


@pytest.mark.parametrize(
    ("write", "read", "is_met"), [(107.0, 59.9, False), (59.9, 107.0, False), (60.0, 60.0, True)]
)
def test_a_disk_is_met_by_the_share_of_a_plain_file_that_the_slower_way_has(
    write: float, read: float, is_met: bool
) -> None:
    # As fast as a spinning disk is not enough on a faster one.
    row = {"kind": "sort-merge", "channels": 8, "write_synced_mb_per_s": 300.0}
    row |= {"read_mb_per_s": 900.0, "write_synced_share_percent": write, "read_share_percent": read}
    (point,) = disk_points([row])
    assert point.is_met is is_met
    assert point.found == f"{write:.1f} and {read:.1f} %: 300 and 900 MB/s"
    assert list(disk_points([row | {"kind": "hybrid"}])) == []


def test_tcp_and_tls_are_points_of_their_own_that_say_where_they_were_taken() -> None:
    tls = {"tcp_mb_per_s": 700.0, "tls_mb_per_s": 490.0, "raw_tcp_mb_per_s": 1000.0}
    points = list(cost_points({"tls": tls}))
    assert [point.is_met for point in points] == [True, False]
    assert [point.found for point in points] == ["70.0 %: 700 MB/s", "49.0 %: 490 MB/s"]
    assert all("loopback" in point.what for point in points)


def test_what_other_benchmarks_measure_is_told_or_named() -> None:
    assert "make bench BENCH=back_pressure_memory" in memory_point(None).found
    figures = {"resident_mb": [210.0, 213.0], "growth_percent": [-2.0, 6.0], "seconds": 45.0}
    assert memory_point(figures).is_met is False
    assert "make bench BENCH=state" in next(barrier_points(None)).found
    cells = [{"way": "aligned", "duration_ms": 11_000}, {"way": "unaligned", "duration_ms": 500}]
    assert [point.found for point in barrier_points({"cells": cells})] == [
        "11.0 to 11.0 s, by the size of the state",
        "0.5 to 0.5 s, by the size of the state",
    ]


def test_without_any_figures_there_is_still_a_table() -> None:
    table = reference_table({}, {})
    assert table.startswith("| | reference | here | met |")
    assert str(Point("a", "b", "c", False)) == "| a | b | c | **no** |"


OF_TASKS = {"producing_task_cpu_s_per_mrow": 0.3, "consuming_task_cpu_s_per_mrow": 0.15}


@pytest.mark.parametrize(
    ("changes", "split", "reason"),
    [
        ({"channels": 16}, None, "500 µs of both sides for each batch of 1,000 rows: copies"),
        ({"channels": 16, "rows_per_batch": 20.0}, 0.1, "small batches, 20 rows each"),
        ({"channels": 16, **OF_TASKS}, 0.1, "60 % the producing task (20 % splitting), 30 %"),
        ({"channels": 1, **OF_TASKS}, 0.0, "60 % the producing task, 30 % the consuming one"),
    ],
)
def test_a_cell_below_half_says_what_it_spends_its_time_with(
    changes: dict[str, Any], split: float | None, reason: str
) -> None:
    found = cell(1, -1, 1.0, rows_per_batch=1000.0, cpu_s_per_mrow=0.5) | changes
    assert reason in reason_of(found, split)


@pytest.mark.parametrize("channels", [1, 4])
def test_what_is_measured_as_splitting_is_the_splitting_of_the_record_writer(
    channels: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(matrix, "SPLIT_SECONDS", 0.0)
    asked: list[int] = []
    split = PartitionBuffer.split

    def count(unsplit: PartitionBuffer) -> Iterator[ChannelShare]:
        shares = list(split(unsplit))
        asked.append(len(shares))
        return iter(shares)

    monkeypatch.setattr(PartitionBuffer, "split", count)
    found = matrix.measure_split(RowMaker(16, 2048), 16, channels)
    assert asked == ([] if channels == 1 else [4] * 8)
    assert (found["split_cpu_s_per_mrow"] > 0) is (channels > 1)
