"""The order in which rows are found by number: as a stable sort gives it, however large the numbers are."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headrace.core.config import Settings
from headrace.core.process.state_memory import StateMemory
from headrace.operators.columns.integer_columns import stable_order
from headrace.operators.columns.matching import FindableRows, MatchRun, WantedNumbers

LONGS = st.integers(-(2**63), 2**63 - 1)


@pytest.mark.parametrize("number_type", [np.int32, np.int64])
def test_few_numbers_are_in_order_of_their_places(number_type: Any) -> None:
    numbers = np.array([3, -1, 3, -1, 0], dtype=number_type)
    assert stable_order(numbers).tolist() == [1, 3, 4, 0, 2]


@given(st.lists(LONGS | st.integers(-2, 2) | st.just(2**62)))
@example([])
@example([-(2**63), 2**63 - 1, -(2**63)])
@example([-(2**61), 2**61 - 1, 0, 0])
@example([2**63 - 1, 2**63 - 2, 2**63 - 1])
@example([-(2**63), 1 - 2**63, -(2**63)])
def test_any_numbers_are_in_the_order_of_a_stable_sort(drawn: list[int]) -> None:
    numbers = np.array(drawn, dtype=np.int64)
    assert stable_order(numbers).tolist() == np.argsort(numbers, kind="stable").tolist()


@given(st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=9), max_size=20))
def test_rows_stay_in_order_of_arrival_and_are_found_whatever_runs_they_are_in(
    arrivals: list[list[int]],
) -> None:
    memory = StateMemory("joining", "rows", Settings())
    rows = FindableRows(pa.schema([("number", pa.int64()), ("arrival", pa.int64())]), memory)
    numbers = [number for arrival in arrivals for number in arrival]
    begin = 0
    for arrival in arrivals:
        table = pa.table({"number": arrival, "arrival": range(begin, begin + len(arrival))})
        begin += len(arrival)
        rows.add(MatchRun.of(np.array(arrival), table))
    kept = [row for table in rows.tables for row in table.column("arrival").to_pylist()]
    assert kept == list(range(len(numbers)))
    wanted = pa.table({"number": [7, 3, 7]})
    pairs = rows.look_up(WantedNumbers(np.array([7, 3, 7]))).find(wanted, [], ["arrival"])
    found = [] if pairs is None else pairs.found.column("arrival").to_pylist()
    at = {one: [place for place, number in enumerate(numbers) if number == one] for one in (3, 7)}
    assert found == [*at[7], *at[3], *at[7]]
    assert memory.size_bytes == 32 * len(numbers), "two columns, the numbers and their places"
    rows.clear()
    assert memory.size_bytes == 0
    memory.close()


@given(st.lists(st.integers(-3, 3)))
def test_rows_that_ask_are_found_like_rows_that_do_not(drawn: list[int]) -> None:
    numbers = np.array(drawn, dtype=np.int64)
    rows = pa.table({"number": numbers})
    run, asking = MatchRun.of(numbers, rows), WantedNumbers(numbers).as_run(rows)
    assert run.numbers.tolist() == asking.numbers.tolist() == sorted(drawn)
    assert run.places.tolist() == asking.places.tolist()
    assert run.rows is asking.rows is rows
