"""Sums of 64-bit integers beyond 64 bits: of the values, which may wrap, and of their upper halves. Pure.

Both are integers that are added up in any order. So follows the whole sum of fewer than 2**32 values: that of the
lower halves, none of which is negative, is what they differ by, and fits into 64 bits.
"""

from typing import Any, Final

import numpy as np
import numpy.typing as npt

HALF_BITS: Final = 32

HalfSums = npt.NDArray[np.int64]


def upper_halves(values: npt.NDArray[Any]) -> HalfSums:
    """Return the integers, of any type, without their lower 32 bits: rounded down."""
    if values.dtype != np.uint64:
        values = values.astype(np.int64, copy=False)
    return (values >> HALF_BITS).astype(np.int64, copy=False)


def float_sums(sums: HalfSums, upper_sums: HalfSums) -> npt.NDArray[np.float64]:
    """Return the whole sums, to double precision; that of 64 bits is rounded once."""
    lower_sums = (sums - (upper_sums << HALF_BITS)).view(np.uint64)
    carries = (lower_sums >> HALF_BITS).astype(np.int64)
    rests = lower_sums & np.uint64(2**HALF_BITS - 1)
    uppers: npt.NDArray[np.float64] = (upper_sums + carries).astype(np.float64)
    return uppers * 2**HALF_BITS + rests.astype(np.float64)
