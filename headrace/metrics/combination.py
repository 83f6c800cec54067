"""Combination of subtasks' values into the value of their vertex, by the rule in each metric's row.

For user metrics only the name is known: the suffixes of instruments identify minima, maxima and quantiles; everything
else is summed.
"""

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from headrace.metrics.metric_name import Combination
from headrace.metrics.names import METRIC_NAMES

_RULES: Final = {row.name: row.combination for row in METRIC_NAMES}
_ENDINGS: Final = {
    "min": Combination.MIN,
    "max": Combination.MAX,
    # Quantiles of several windows have no exact union; their mean lies among them.
    **dict.fromkeys(
        ("mean", "stddev", "median", "p75", "p90", "p95", "p98", "p99", "p999"),
        Combination.AVERAGE,
    ),
}


def combination_of(name: str) -> Combination:
    """Return the rule for a name of a snapshot: plain, or below an operator and user groups."""
    last = name.rpartition(".")[2]
    rule = _RULES.get(last)
    if rule is None:
        stem, _, ending = last.rpartition("_")
        rule = _ENDINGS.get(ending) if stem else None
    return rule or Combination.SUM


def combine_metrics(snapshots: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Return one snapshot for several; a name that some of them lack is combined over the others.

    Subtasks of a vertex usually have the same names: then their snapshots are combined column by column.
    """
    alike: dict[tuple[str, ...], list[Iterable[float]]] = {}
    for snapshot in snapshots:
        alike.setdefault(tuple(snapshot), []).append(snapshot.values())
    if len(alike) == 1:
        ((names, rows),) = alike.items()
        columns = zip(names, _combiners(names), zip(*rows, strict=True), strict=True)
        return {name: combine(column) for name, combine, column in columns}
    collected: dict[str, list[float]] = {}
    for names, rows in alike.items():
        for name, column in zip(names, zip(*rows, strict=True), strict=True):
            collected.setdefault(name, []).extend(column)
    return {name: _COMBINERS[combination_of(name)](values) for name, values in collected.items()}


def combined_value(name: str, snapshots: Iterable[Mapping[str, float]]) -> float | None:
    """Return the value of `combine_metrics` for `name`, or None if there is none."""
    values = [snapshot[name] for snapshot in snapshots if name in snapshot]
    return _COMBINERS[combination_of(name)](values) if values else None


def _average(values: Sequence[float]) -> float:
    return sum(values) / len(values)


_COMBINERS: Final[Mapping[Combination, Callable[[Sequence[float]], float]]] = {
    Combination.SUM: sum,
    Combination.MAX: max,
    Combination.MIN: min,
    Combination.AVERAGE: _average,
}


@functools.lru_cache(maxsize=1024)
def _combiners(names: tuple[str, ...]) -> tuple[Callable[[Sequence[float]], float], ...]:
    return tuple(_COMBINERS[combination_of(name)] for name in names)
