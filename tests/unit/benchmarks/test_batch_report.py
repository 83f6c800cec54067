"""The report on BATCH mode: ways that run, answers that differ, the newest figures, and whether aims are reached."""

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.batch_report.__main__ import WAYS, refuse_different, ways_of
from benchmarks.batch_report.queries import checksum
from benchmarks.batch_report.report import newest, write_page
from benchmarks.batch_report.tables import tables_directory
from benchmarks.nexmark.files import row_counts

HEAD = {"date": "2026-01-02", "machine": "two cores", "load_average_before": 0.25}


def run(query: str, batch: int, pyflink: int, turns: int = 3) -> dict[str, Any]:
    rates = {"batch": batch, "spark": batch // 2, "pyflink_thread": pyflink}
    figures = {
        "query": query,
        "events": dict.fromkeys(rates, 1_000_000),
        "turns": turns,
        "records_per_second": {way: [rate] * turns for way, rate in rates.items()},
    }
    return {**HEAD, "versions": {"pyspark": "4"}, "figures": figures}


def shape(batch: float, records: int = 1_000_000) -> dict[str, Any]:
    figures = {"records": records, "keys": 10, "parallelism": 1, "turns": 3}
    rates = {"batch": batch, "streaming": 50.0, "apply_in_pandas": 100.0}
    return {
        **HEAD,
        "figures": figures | {f"{way}_records_per_second": rate for way, rate in rates.items()},
    }


def test_pyflink_runs_where_there_is_an_interpreter_and_a_program() -> None:
    ours = ["batch", "streaming", "spark"]
    streams, sql = ["pyflink_thread", "pyflink_process"], ["pyflink_sql"]
    assert ways_of("currency", list(WAYS), has_pyflink=True) == [*ours, *streams]
    assert ways_of("currency", list(WAYS), has_pyflink=False) == ours
    assert ways_of("pricing", list(WAYS), has_pyflink=True) == [*ours, *sql]


def test_other_rows_are_an_error_and_another_order_is_not() -> None:
    rows = [(1, 2.5), (2, 0.1)]
    refuse_different("q", {"batch": checksum(rows), "spark": checksum(reversed(rows))})
    with pytest.raises(ValueError, match="disagree about 'q'"):
        refuse_different("q", {"batch": checksum(rows), "spark": checksum(rows[:1])})


def test_tables_are_made_once_and_counted(tmp_path: Path) -> None:
    directory = tables_directory(tmp_path, 40)
    assert row_counts(directory) == {"item": 40, "order": 10}
    made = {file: file.stat().st_mtime_ns for file in directory.rglob("*.parquet")}
    assert tables_directory(tmp_path, 40) == directory
    assert made == {file: file.stat().st_mtime_ns for file in directory.rglob("*.parquet")}


def test_the_newest_run_of_each_query_and_shape_counts_and_small_ones_do_not(
    tmp_path: Path,
) -> None:
    kept = {
        "batch_report": [run("expensive", 1, 1), run("currency", 1, 1), run("expensive", 2, 1)],
        "batch_modes": [shape(1), shape(2), shape(3, records=1_000)],
    }
    for name, lines in kept.items():
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(one) + "\n" for one in lines))
    runs, shapes = newest(tmp_path)
    assert runs == [kept["batch_report"][1], kept["batch_report"][2]]
    assert shapes == [kept["batch_modes"][1]]


@pytest.mark.parametrize(("batch", "verdict"), [(1_000, "reached"), (990, "missed")])
def test_the_least_multiple_decides_whether_an_aim_is_reached(batch: int, verdict: str) -> None:
    page = write_page([run("currency", 2_000, 100), run("expensive", batch, 100)], [], [], [])
    assert f"PyFlink on functions of one record: {verdict}, with {batch / 100:.2f}" in page


def test_too_few_turns_give_no_multiple() -> None:
    page = write_page([run("currency", 5_000, 100, turns=2)], [shape(99)], [], [])
    assert "PyFlink on functions of one record: not known yet" in page
    assert "`applyInPandas` on keyed functions: missed, with 0.99" in page


def test_equal_work_decides_where_it_was_measured() -> None:
    line = shape(50)
    line["figures"]["batch_pandas_records_per_second"] = 120.0
    page = write_page([], [line], [], [])
    assert "`applyInPandas` on keyed functions: reached, with 1.20" in page


def test_the_memory_of_many_keys_is_told_beside_that_of_a_dict() -> None:
    assert write_page([], [], [], []).count("Nothing was measured yet.") == 3
    sizes = {"worker_bytes_max": 400 << 20, "jvm_bytes_max": 1 << 30, "swapped_bytes_max": 0}
    shown = {"records": 40, "keys": 20, "parallelism": 2, "seconds": 5.5}
    figures = {**shown, **sizes, "state_bytes_in_a_dict": 3 << 30}
    page = write_page([], [], [{**shape(1), "figures": figures}], [])
    assert "A dict of all keys with their counts takes 3,072 MiB." in " ".join(page.split())
    assert "The largest Python worker took 400 MiB" in " ".join(page.split())
