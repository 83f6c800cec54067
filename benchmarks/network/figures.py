"""The arithmetic of figures: percentiles, shares, and what of several runs is the newest. Pure."""

import itertools
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

CELL_KEYS = ("channels", "row_bytes", "timeout_ms")


def percentile(values: Sequence[float], percent: float) -> float:
    """Return the smallest of `values` (at least one) that `percent` of them do not exceed: nearest rank."""
    ordered = sorted(values)
    rank = -(-len(ordered) * percent // 100)
    return ordered[max(0, int(rank) - 1)]


def spread(values: Sequence[float], prefix: str, digits: int = 3) -> dict[str, float]:
    """Return p50 and p99 under names that begin with `prefix`; nothing without values."""
    if not values:
        return {}
    return {
        f"{prefix}_p50": round(percentile(values, 50), digits),
        f"{prefix}_p99": round(percentile(values, 99), digits),
    }


def paired_share_percent(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Return the median of what share of `theirs` each of `ours` is, turn by turn."""
    shares = [100 * own / other for own, other in zip(ours, theirs, strict=True)]
    return round(statistics.median(shares), 1)


def between_share_percents(ours: Sequence[float], theirs: Sequence[float]) -> list[float]:
    """Return what share each of `ours` is of the mean of the two of `theirs` (one more) between which it was taken."""
    pairs = itertools.pairwise(theirs)
    return [200 * own / (before + after) for own, (before, after) in zip(ours, pairs, strict=True)]


def newest_sections(lines: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return each section as the last run that has it gave it; rows of tables each for themselves.

    A run of a part of the matrix so replaces those cells and no others. `runs` says of each section whose it is.
    """
    sections: dict[str, Any] = {}
    runs: dict[str, Any] = {}
    for line in lines:
        for name, value in line["figures"].items():
            known = sections.get(name)
            if isinstance(value, list) and isinstance(known, list):
                sections[name] = _merged(known, value)
            else:
                sections[name] = value
            runs[name] = {key: line.get(key) for key in ("date", "load_average", "machine")}
    sections["runs"] = runs
    return sections


def _merged(known: list[dict[str, Any]], newer: list[dict[str, Any]]) -> list[dict[str, Any]]:
    replaced = {_row_key(row) for row in newer}
    return [row for row in known if _row_key(row) not in replaced] + newer


def _row_key(row: Mapping[str, Any]) -> tuple[Any, ...]:
    names = ("kind", "codec", "data", "carrier", *CELL_KEYS, "debloating", "harm", "load")
    return tuple(row.get(name) for name in names)


def with_shares(
    cells: Iterable[Mapping[str, Any]], ceilings: Iterable[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Return the cells with their share of what raw sockets move of rows of that size, where that is known."""
    raw = {(row["carrier"], row["row_bytes"]): row["raw_mb_per_s"] for row in ceilings}
    found: list[dict[str, Any]] = []
    for cell in cells:
        ceiling = raw.get((cell["carrier"], cell["row_bytes"]))
        share = {} if ceiling is None else {"share_percent": 100 * cell["mb_per_s"] / ceiling}
        found.append({**cell, **share})
    return found
