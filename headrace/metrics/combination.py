"""Combines the values of subtasks into those of their vertex, by a rule per metric name. Pure.

The runtime's metrics say it in their row of the table. Of a user's metric only the name is known: what instruments
make of a name tells minima, maxima and quantiles; everything else is summed.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from headrace.metrics.names import METRIC_NAMES, Combination

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
    """Return the rule for a name as in a snapshot: plain, or below an operator and groups of the user's."""
    last = name.rpartition(".")[2]
    rule = _RULES.get(last)
    if rule is None:
        stem, _, ending = last.rpartition("_")
        rule = _ENDINGS.get(ending) if stem else None
    return rule or Combination.SUM


def combine_metrics(snapshots: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Return one snapshot for several; a name that some of them lack is combined over those that have it."""
    collected: dict[str, list[float]] = {}
    for snapshot in snapshots:
        for name, value in snapshot.items():
            collected.setdefault(name, []).append(value)
    return {name: _combine(combination_of(name), values) for name, values in collected.items()}


def _combine(rule: Combination, values: Sequence[float]) -> float:
    match rule:
        case Combination.SUM:
            return sum(values)
        case Combination.MAX:
            return max(values)
        case Combination.MIN:
            return min(values)
        case Combination.AVERAGE:
            return sum(values) / len(values)
