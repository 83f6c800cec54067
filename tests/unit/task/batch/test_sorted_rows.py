"""Rows of keyed inputs come in order, whatever lies in files meanwhile."""

import os
import tempfile
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.elements import MIN_TIMESTAMP
from headrace.core.record_batch import KEY_COLUMN, KEY_HASH_COLUMN, TIMESTAMP_COLUMN
from headrace.task.batch.sorted_rows import SortedRows

Arrival = tuple[int, bool, list[tuple[int, int]]]
"""Input, whether the rows have timestamps, and (hash, time) of each."""
arrivals = st.lists(
    st.tuples(
        st.integers(0, 1),
        st.booleans(),
        st.lists(st.tuples(st.integers(-2, 2), st.integers(0, 3)), min_size=1, max_size=12),
    ),
    min_size=1,
    max_size=8,
)


def rows_of(arrival: Arrival, first_place: int) -> pa.RecordBatch:
    _, is_timed, rows = arrival
    columns = {"place": pa.array(range(first_place, first_place + len(rows)), pa.int64())}
    if is_timed:
        columns[TIMESTAMP_COLUMN] = pa.array([time for _, time in rows], pa.int64())
    columns[KEY_HASH_COLUMN] = pa.array([one for one, _ in rows], pa.int32())
    return pa.RecordBatch.from_pydict(columns)


@given(arrivals, st.sampled_from([1, 150, 1 << 20]), st.sampled_from([0, 300, 1 << 20]))
def test_rows_come_by_hash_then_time_then_input_and_arrival(
    given_arrivals: list[Arrival], run_bytes: int, kept_bytes: int
) -> None:
    # As Spark gives them: the first input before the second.
    given_arrivals.sort(key=lambda one: one[0])
    rows = SortedRows(None, run_bytes, kept_bytes)
    expected: list[tuple[int, int, int, int]] = []
    for arrival in given_arrivals:
        number, is_timed, content = arrival
        rows.add(number, rows_of(arrival, len(expected)))
        expected += [
            (one, time if is_timed else MIN_TIMESTAMP, number, len(expected) + index)
            for index, (one, time) in enumerate(content)
        ]
    found: list[tuple[int, int, int]] = []
    for ordered in rows.ordered():
        middle = ordered.num_rows // 2
        for start, end in ((0, middle), (middle, ordered.num_rows)):
            if start == end:
                continue
            part = ordered.part(start, end)
            places = {
                number: iter(one.column("place").to_pylist())
                for number, one in part.rows_of.items()
            }
            found += [
                (one, number, next(places[number]))
                for one, number in zip(part.hashes.tolist(), part.inputs.tolist(), strict=True)
            ]
            assert not any(list(rest) for rest in places.values())
    rows.close()
    assert found == [(one, number, place) for one, _, number, place in sorted(expected)]


@pytest.mark.parametrize("is_timed", [False, True])
def test_long_stretches_of_few_keys_come_as_they_arrived(tmp_path: Path, is_timed: bool) -> None:
    rng = np.random.default_rng(1)
    rows = SortedRows(str(tmp_path), 100_000)
    expected: list[tuple[int, int]] = []
    for _ in range(9):
        hashes = rng.integers(-2, 3, 5_000).tolist()
        arrival = (0, is_timed, [(one, 0) for one in hashes])
        rows.add(0, rows_of(arrival, len(expected)))
        expected += [(one, len(expected) + index) for index, one in enumerate(hashes)]
    found: list[tuple[int, int]] = []
    for ordered in rows.ordered():
        places = ordered.rows_of[0].column("place").to_pylist()
        found += zip(ordered.hashes.tolist(), places, strict=True)
        assert not ordered.inputs.any()
    rows.close()
    assert found == sorted(expected)


@pytest.mark.parametrize(("kept_bytes", "held_limit"), [(0, 10 << 20), (2 << 20, 12 << 20)])
def test_memory_holds_what_it_may_and_the_rest_lies_in_files_that_go(
    tmp_path: Path, kept_bytes: int, held_limit: int
) -> None:
    rows = SortedRows(str(tmp_path), 1 << 20, kept_bytes)
    rng = np.random.default_rng(1)
    before = pa.total_allocated_bytes()
    counts: Counter[int] = Counter()
    held_max = 0
    for _ in range(64):
        hashes = rng.integers(-1000, 1000, 20_000, dtype=np.int32)
        counts.update(hashes.tolist())
        rows.add(
            0,
            pa.RecordBatch.from_pydict(
                {"value": pa.array(np.zeros(20_000)), KEY_HASH_COLUMN: pa.array(hashes)}
            ),
        )
        held_max = max(held_max, pa.total_allocated_bytes() - before)
    found: Counter[int] = Counter()
    for ordered in rows.ordered():
        found.update(ordered.hashes.tolist())
        held_max = max(held_max, pa.total_allocated_bytes() - before)
    assert found == counts
    assert held_max < held_limit, "all rows take 15 MiB"
    assert os.listdir(tmp_path) == [], "files have no names, so that none is left whatever happens"
    rows.close()


def test_runs_that_may_stay_in_memory_have_no_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "TemporaryFile", lambda **_: pytest.fail("a file was made"))
    rows = SortedRows(None, 1_000, 1 << 20)
    for place in range(4):
        rows.add(0, rows_of((0, True, [(place % 2, time) for time in range(100)]), place * 100))
    hashes = np.concatenate([one.hashes for one in rows.ordered()])
    assert hashes.tolist() == [0] * 200 + [1] * 200
    rows.close()


def test_nothing_comes_of_nothing() -> None:
    assert list(SortedRows(None, 1 << 20).ordered()) == []


@pytest.mark.parametrize("run_bytes", [1, 1 << 30])
def test_a_hot_key_is_not_held_as_a_whole(run_bytes: int) -> None:
    rows = SortedRows(None, run_bytes)
    for place in range(5):
        rows.add(0, rows_of((0, False, [(7, 0)] * 20_000), place * 20_000))
    pieces = [one.rows_of[0].column("place").to_numpy() for one in rows.ordered()]
    assert np.array_equal(np.concatenate(pieces), np.arange(100_000))
    assert max(map(len, pieces)) < 100_000
    rows.close()


@pytest.mark.parametrize("run_bytes", [1, 1 << 20])
@pytest.mark.parametrize("is_same", [False, True])
def test_a_key_that_is_a_column_comes_with_its_rows(run_bytes: int, is_same: bool) -> None:
    rows = SortedRows(None, run_bytes)
    for start in (0, 3):
        keys = pa.array(["b", "a", None] if start else ["a", "c", "b"])
        columns = {
            "place": pa.array(range(start, start + 3)),
            "name": keys,
            KEY_COLUMN: keys if is_same or start else pa.array(keys.to_pylist()),
            KEY_HASH_COLUMN: pa.array([2, 1, 0] if start else [1, 3, 2], pa.int32()),
        }
        rows.add(0, pa.RecordBatch.from_pydict(columns))
    found = pa.concat_tables(pa.table(one.rows_of[0]) for one in rows.ordered())
    rows.close()
    assert found.column_names == ["place", "name", KEY_COLUMN, KEY_HASH_COLUMN]
    assert found.column("place").to_pylist() == [5, 0, 4, 2, 3, 1]
    assert found.column(KEY_COLUMN).to_pylist() == found.column("name").to_pylist()
    assert found.column("name").to_pylist() == [None, "a", "a", "b", "b", "c"]
