"""What every question of growth answers with: a quantity at several sizes, and how fast it grows. Pure."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from benchmarks.record import append_result

RESULTS_NAME = "growth"


@dataclass(frozen=True)
class Series:
    """`values` of a quantity at `sizes`, upward.

    `linear` is the exponent with which the quantity grows where no step is faster than linear: 1 for the cost of a
    whole, 0 for that of each item.
    """

    question: str
    name: str
    size_name: str
    unit: str
    linear: float
    sizes: tuple[float, ...]
    values: tuple[float, ...]

    @property
    def exponent(self) -> float:
        """The slope over all sizes, both axes logarithmic: least squares. Not a number with fewer than two sizes."""
        return fitted_slope(self.sizes, self.values)

    @property
    def last_exponent(self) -> float:
        """The slope over the last three sizes, where fixed costs weigh least and memory and caches most."""
        return fitted_slope(self.sizes[-3:], self.values[-3:])


def fitted_slope(sizes: Sequence[float], values: Sequence[float]) -> float:
    """Return the exponent b of the power law a * size ** b that is nearest on logarithmic axes."""
    if len(sizes) < 2:
        return math.nan
    slope, _ = np.polyfit(np.log(sizes), np.log(values), 1)
    return float(slope)


def measure_series(
    question: str,
    name: str,
    size_name: str,
    unit: str,
    linear: float,
    sizes: Iterable[int],
    measure: Callable[[int], float],
) -> Series:
    """Measure a quantity at each size, and say it."""
    found: list[tuple[int, float]] = []
    for size in sizes:
        value = measure(size)
        print(f"{question}: {name}, {size:,} {size_name}: {value:,.4g} {unit}", flush=True)
        found.append((size, value))
    sizes_, values = zip(*found, strict=True)
    return Series(question, name, size_name, unit, linear, sizes_, values)


def keep(series: Sequence[Series], load_before: float) -> None:
    """Append a question's answer to the results."""
    figures: dict[str, Any] = {
        "load_average_before": load_before,
        "series": [asdict(one) for one in series],
    }
    append_result(RESULTS_NAME, figures)


def newest_series(lines: Iterable[Mapping[str, Any]]) -> list[Series]:
    """Return each series as the last run that has it gave it, in the order in which they first came."""
    newest: dict[tuple[str, str], Series] = {}
    for line in lines:
        for fields in line["figures"]["series"]:
            lists: dict[str, Any] = {key: tuple(fields[key]) for key in ("sizes", "values")}
            newest[fields["question"], fields["name"]] = Series(**(fields | lists))
    return list(newest.values())
