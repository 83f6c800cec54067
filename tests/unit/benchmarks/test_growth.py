"""Growth: slopes of recorded figures, and the page that is made of them."""

import math
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from benchmarks.growth import keys
from benchmarks.growth.keys import bytes_of_files
from benchmarks.growth.report import table, write_page
from benchmarks.growth.series import Series, fitted_slope, newest_series

SIZES = (10, 100, 1_000, 10_000)


def series(
    exponent: float, linear: float = 1.0, question: str = "tasks", name: str = "deploy"
) -> Series:
    return Series(
        question, name, "tasks", "s", linear, SIZES, tuple(0.001 * size**exponent for size in SIZES)
    )


def line(*found: Series, load: float = 0.1) -> dict[str, Any]:
    return {
        "date": "2026-01-02",
        "machine": "two cores",
        "figures": {"load_average_before": load, "series": [asdict(one) for one in found]},
    }


@pytest.mark.parametrize("exponent", [0.0, 0.5, 1.0, 2.0])
def test_the_slope_of_a_power_law_is_its_exponent(exponent: float) -> None:
    one = series(exponent)
    assert one.exponent == pytest.approx(exponent)
    assert one.last_exponent == pytest.approx(exponent)


def test_a_fixed_cost_hides_the_slope_less_at_the_end() -> None:
    values = [1 + 0.001 * size**2 for size in SIZES]
    assert fitted_slope(SIZES, values) < fitted_slope(SIZES[-3:], values[-3:]) < 2


def test_one_size_has_no_slope() -> None:
    assert math.isnan(fitted_slope([10], [1.0]))


def test_of_several_runs_each_series_counts_as_the_last_one_gave_it() -> None:
    old, other, new = series(2.0), series(1.0, name="cancel"), series(1.0)
    assert newest_series([line(old, other), line(new)]) == [new, other]


@pytest.mark.parametrize(
    ("exponent", "linear", "is_steep"),
    [(1.0, 1.0, False), (2.0, 1.0, True), (0.1, 0.0, False), (1.0, 0.0, True)],
)
def test_the_page_names_what_grows_faster_than_linear(
    exponent: float, linear: float, is_steep: bool
) -> None:
    page = write_page([line(series(exponent, linear))], [])
    assert ("No step grows faster than linear" in page) is not is_steep
    assert ("tasks of a job, deploy" in page) is is_steep


@pytest.mark.parametrize(("rate", "verdict"), [(1.8e6, "reached"), (1.6e6, "missed")])
def test_the_page_says_what_a_second_task_manager_gives(rate: float, verdict: str) -> None:
    one = Series("task_managers", "count", "TaskManagers", "records/s", 1, (1, 2), (1e6, rate))
    page = write_page([line(one)], [])
    assert f"{rate / 1e6:.2f} times as fast; the aim of 1.7 is {verdict}" in page


def test_a_busy_machine_is_owned_up_to() -> None:
    busy = write_page([line(series(1.0), load=3.5)], [])
    assert "Measured 2026-01-02 on two cores; load 3.5 before it. **The machine was busy.**" in busy
    # A later quiet run of the same question makes it good.
    both = [line(series(1.0), load=3.5), line(series(1.0))]
    assert "busy" not in write_page(both, [])


def test_series_of_several_runs_name_them_all() -> None:
    page = write_page([line(series(1.0, name="cancel"), load=0.4), line(series(1.0))], [])
    assert (page.count("load 0.4 before it"), page.count("load 0.1 before it")) == (1, 1)


def test_series_of_one_question_share_a_table_where_they_have_the_size() -> None:
    short = Series("tasks", "cancel", "tasks", "s", 1.0, (10, 100), (0.5, 123.4))
    rows = table([series(1.0), short]).splitlines()
    assert rows[0] == "| tasks: | 10 | 100 | 1,000 | 10,000 | slope | at the end | linear |"
    assert rows[3].startswith("| cancel, s | 0.5 | 123 |  |  | ")


def test_a_picture_is_shown_where_it_was_drawn() -> None:
    lines = [line(series(1.0))]
    assert "pictures/growth_tasks.svg" in write_page(lines, ["growth_tasks"])
    assert "pictures/" not in write_page(lines, [])


def test_files_that_are_linked_twice_lie_on_disk_once(tmp_path: Path) -> None:
    table_file = tmp_path / "1.sst"
    table_file.write_bytes(bytes(100))
    (tmp_path / "copy-1").mkdir()
    (tmp_path / "copy-1" / "1.sst").hardlink_to(table_file)
    (tmp_path / "2.sst").write_bytes(bytes(10))
    (tmp_path / "LOG").write_bytes(bytes(1000))
    assert bytes_of_files(tmp_path) == 110


@pytest.mark.parametrize("backend", ["heap", "rocksdb"])
def test_state_costs_processor_time_and_memory_and_rocksdb_a_place_on_disk(
    backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keys, "ACCESSES", 100)
    cost = keys.state_cost(backend, key_count=100_000)
    assert cost.access_us > 0
    assert cost.memory_bytes > 1_000_000
    assert (cost.disk_bytes > 0) is (backend == "rocksdb")
