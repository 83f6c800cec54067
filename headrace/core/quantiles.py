"""Quantiles as Flink tells them: those of Commons Math's default estimation (LEGACY). Pure."""

import math
from collections.abc import Sequence


def interpolated_quantile(ordered: Sequence[float], share: float) -> float:
    """Return a quantile of values in ascending order, interpolated between the two beside it; NaN of none.

    `share`: the part of the values that lie below it, from 0 to 1.
    """
    if not ordered:
        return math.nan
    position = share * (len(ordered) + 1)
    below = math.floor(position)
    if below < 1:
        return float(ordered[0])
    if below >= len(ordered):
        return float(ordered[-1])
    return ordered[below - 1] + (position - below) * (ordered[below] - ordered[below - 1])
