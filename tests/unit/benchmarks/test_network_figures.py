"""The benchmark of the network: percentiles, shares, and what of several runs is the newest."""

from typing import Any

import pytest

from benchmarks.network.figures import (
    between_share_percents,
    newest_sections,
    paired_share_percent,
    percentile,
    spread,
    with_shares,
)


def run(date: str, **figures: Any) -> dict[str, Any]:
    return {"date": date, "load_average": 0.1, "machine": "a machine", "figures": figures}


@pytest.mark.parametrize(
    ("percent", "expected"), [(0, 1), (1, 1), (50, 50), (99, 99), (99.5, 100), (100, 100)]
)
def test_a_percentile_is_one_of_the_values_by_nearest_rank(percent: float, expected: int) -> None:
    assert percentile(list(range(100, 0, -1)), percent) == expected


def test_of_one_value_every_percentile_is_that_value() -> None:
    assert spread([7.0], "ms") == {"ms_p50": 7.0, "ms_p99": 7.0}


def test_nothing_has_no_percentiles() -> None:
    assert spread([], "ms") == {}


def test_a_share_is_the_median_of_what_each_turn_gave() -> None:
    assert paired_share_percent([50, 10, 90], [100, 100, 100]) == 50.0


def test_a_turn_is_compared_with_those_before_and_after_it() -> None:
    assert between_share_percents([50.0, 90.0], [100.0, 100.0, 80.0]) == [50.0, 100.0]


def test_a_machine_that_grows_slower_harms_nobodys_share() -> None:
    speeds = [100.0 - turn for turn in range(21)]
    assert between_share_percents(speeds[1::2], speeds[::2]) == [100.0] * 10


def test_a_later_run_of_some_cells_replaces_those_and_no_others() -> None:
    def cell(channels: int, rate: float) -> dict[str, Any]:
        keys = {"carrier": "unix", "channels": channels, "row_bytes": 16, "timeout_ms": 0}
        return {**keys, "mrows_per_s": rate}

    first = run("2026-01-01", matrix=[cell(1, 1.0), cell(16, 2.0)], credit={"credit_us_p50": 5})
    second = run("2026-01-02", matrix=[cell(16, 3.0)])
    sections = newest_sections([first, second])
    assert [row["mrows_per_s"] for row in sections["matrix"]] == [1.0, 3.0]
    assert sections["credit"] == {"credit_us_p50": 5}
    assert sections["runs"]["matrix"]["date"] == "2026-01-02"
    assert sections["runs"]["credit"]["date"] == "2026-01-01"


def test_a_cell_is_compared_with_raw_sockets_of_its_row_size_and_carrier() -> None:
    cells = [
        {"carrier": "unix", "row_bytes": 16, "mb_per_s": 50.0},
        {"carrier": "unix", "row_bytes": 200, "mb_per_s": 50.0},
        {"carrier": "tcp", "row_bytes": 16, "mb_per_s": 50.0},
    ]
    found = with_shares(cells, [{"carrier": "unix", "row_bytes": 16, "raw_mb_per_s": 200.0}])
    assert [cell.get("share_percent") for cell in found] == [25.0, None, None]
