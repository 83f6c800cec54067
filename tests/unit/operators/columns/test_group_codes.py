"""Groups by code: the rows they begin with."""

import numpy as np

from headrace.operators.columns.integer_groups import first_rows


def test_the_first_row_of_each_group_is_found_and_none_of_a_group_without_rows() -> None:
    codes = np.array([2, 0, 2, 0, 3], dtype=np.int64)
    assert first_rows(codes, 5).tolist() == [1, -1, 0, 4, -1]
    assert first_rows(codes[:0], 2).tolist() == [-1, -1]
