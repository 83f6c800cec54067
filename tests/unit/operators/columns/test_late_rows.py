"""Rows that came too late: dropped, and counted with all that they stand for."""

import numpy as np
import pyarrow as pa

from headrace.functions.specs.columnar_specs import ROWS
from headrace.metrics.instruments import Counter
from headrace.operators.columns.stored_rows import without_late

PARTIALS = pa.table({"n": [1, 2, 3, 4], ROWS: [10, 20, 30, 40]})


def test_late_rows_go_and_count_for_all_that_they_stand_for() -> None:
    count = Counter()
    count.inc(5)
    timely = without_late(PARTIALS, np.array([True, False, True, False]), count)
    assert timely.to_pydict() == {"n": [2, 4], ROWS: [20, 40]}
    assert count.get_count() == 5 + 10 + 30


def test_where_all_are_late_no_row_stays() -> None:
    count = Counter()
    timely = without_late(PARTIALS, np.full(4, True), count)
    assert (timely.num_rows, timely.schema, count.get_count()) == (0, PARTIALS.schema, 100)


def test_where_none_is_late_rows_stay_as_they_are() -> None:
    count = Counter()
    assert without_late(PARTIALS, np.full(4, False), count) is PARTIALS
    assert count.get_count() == 0
