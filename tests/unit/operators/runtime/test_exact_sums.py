"""Sums beyond 64 bits, made of two that may wrap."""

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headrace.operators.runtime.exact_sums import float_sums, upper_halves

LARGEST = {np.int64: 2**63 - 1, np.uint64: 2**64 - 1, np.int8: 127}


def summed(values: list[int], dtype: Any) -> float:
    array = np.array(values, dtype=dtype)
    sums = np.array([np.add.reduce(array.astype(np.int64))])
    return float(float_sums(sums, np.array([np.add.reduce(upper_halves(array))]))[0])


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1))
@example([2**63 - 1] * 1000)
@example([-(2**63)] * 1000)
@example([2**63 - 1, -(2**63), 2**53 + 1])
def test_a_sum_is_that_of_python_to_double_precision(values: list[int]) -> None:
    total = sum(values)
    made = summed(values, np.int64)
    assert made == pytest.approx(float(total), rel=2**-52, abs=0)
    if -(2**63) <= total < 2**63:
        assert made == float(total)


@pytest.mark.parametrize("dtype", LARGEST)
def test_integers_of_every_type_are_added_up(dtype: Any) -> None:
    assert summed([LARGEST[dtype]] * 3, dtype) == float(3 * LARGEST[dtype])
    assert summed([0, 0], dtype) == 0


def test_numbers_below_zero_cancel_out_to_the_last_one() -> None:
    assert summed([2**63 - 1, -(2**63 - 1), 3, -1], np.int64) == 2.0
