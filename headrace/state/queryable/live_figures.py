"""Figures of one state: its size by key group and key, expired rows, open windows and due timers.

They are computed piece by piece from the rows of a live read, so that no row has to leave the task.
"""

import heapq
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.checkpoint.handles import StateTable
from headrace.checkpoint.state_queries import (
    TIMER_DUE_LIMITS_MS,
    TOP_KEYS,
    KeyFigures,
    KeyGroupFigures,
    StateFigures,
    TimerFigures,
)
from headrace.core.elements import MIN_TIMESTAMP
from headrace.core.errors import short_repr
from headrace.core.types.pickles import unpickle_values
from headrace.state.columns import (
    EVENT_DOMAIN,
    KEY,
    KEY_GROUP,
    LAST_ACCESS,
    NAMESPACE,
    TIMER_DOMAIN,
    TIMER_TIME,
    WINDOW_START,
)
from headrace.state.queryable.live_rows import LiveSource, Sizes, row_sizes

_KEYS_MAX: Final = 10_000
"""Limit of keys of one state that are counted; beyond it the half with the fewest bytes is dropped."""

Times = npt.NDArray[np.int64]


@dataclass
class _Amount:
    row_count: int = 0
    size_bytes: int = 0

    def add(self, row_count: int, size_bytes: int) -> None:
        self.row_count += row_count
        self.size_bytes += size_bytes


class FigureCollector:
    """Computes the figures of one state of one subtask. Mailbox thread only."""

    def __init__(self, source: LiveSource, expired_until_ms: int | None) -> None:
        self._source = source
        self._expired_until_ms = expired_until_ms
        self._total = _Amount()
        self._groups: dict[int, _Amount] = {}
        self._keys: dict[Hashable, _Amount] = {}
        self._has_forgotten = False
        self._expired_count = 0
        self._oldest_ms: int | None = None
        self._timers: dict[str, list[Times]] = {}

    def add(self, table: pa.Table) -> None:
        """Add rows of the state."""
        sizes = row_sizes(table)
        self._total.add(table.num_rows, int(sizes.sum()))
        if KEY_GROUP in table.column_names:
            self._add_groups(table.column(KEY_GROUP).to_numpy(), sizes)
        if KEY in table.column_names:
            self._add_keys(table.column(KEY), sizes)
        if self._expired_until_ms is not None and LAST_ACCESS in table.column_names:
            accesses = table.column(LAST_ACCESS).drop_null().to_numpy()
            self._expired_count += int(np.count_nonzero(accesses <= self._expired_until_ms))
        if self._source.table is StateTable.TIMERS:
            self._add_timers(table)
        else:
            self._add_windows(table)

    def figures(self, *, watermark_ms: int, now_ms: int, is_partial: bool = False) -> StateFigures:
        """Return the figures; timers are due by the operator's watermark or by the clock `now_ms` (epoch ms)."""
        event_now_ms = None if watermark_ms == MIN_TIMESTAMP else watermark_ms
        return StateFigures(
            self._source.table,
            self._source.name,
            self._total.row_count,
            self._total.size_bytes,
            key_groups=tuple(
                KeyGroupFigures(group, amount.row_count, amount.size_bytes)
                for group, amount in sorted(self._groups.items())
            ),
            top_keys=self._top_keys(),
            are_top_keys_exact=not self._has_forgotten,
            expired_count=None if self._expired_until_ms is None else self._expired_count,
            oldest_window_ms=self._oldest_ms,
            timers=tuple(
                _timer_figures(domain, times, event_now_ms if domain == EVENT_DOMAIN else now_ms)
                for domain, times in sorted(self._timers.items())
            ),
            is_partial=is_partial,
        )

    def _add_groups(self, groups: npt.NDArray[np.int32], sizes: Sizes) -> None:
        distinct, codes = np.unique(groups, return_inverse=True)
        rows = np.bincount(codes)
        sums = np.bincount(codes, weights=sizes)
        for index, group in enumerate(distinct.tolist()):
            amount = self._groups.setdefault(group, _Amount())
            amount.add(int(rows[index]), int(sums[index]))

    def _add_keys(self, keys: pa.ChunkedArray, sizes: Sizes) -> None:
        known = self._keys
        for key, size in zip(map(_hashable, keys.to_pylist()), sizes.tolist(), strict=True):
            amount = known.get(key)
            if amount is None:
                amount = known[key] = _Amount()
            amount.add(1, size)
        if len(known) > _KEYS_MAX:
            self._has_forgotten = True
            largest = sorted(known.items(), key=_size_of, reverse=True)
            self._keys = dict(largest[: _KEYS_MAX // 2])

    def _top_keys(self) -> tuple[KeyFigures, ...]:
        # Not sorted: this is one mail, and the keys may be many.
        ordered = heapq.nlargest(TOP_KEYS, self._keys.items(), key=_size_of)
        ordered += heapq.nlargest(TOP_KEYS, self._keys.items(), key=_count_of)
        shown: Callable[[Any], str] = short_repr
        if KEY in self._source.opaque:
            # The task has pickled them itself a moment ago.
            shown = _shown_pickle
        return tuple(
            KeyFigures(shown(_plain(key)), amount.row_count, amount.size_bytes)
            for key, amount in dict(ordered).items()
        )

    def _add_windows(self, table: pa.Table) -> None:
        for name in (NAMESPACE, WINDOW_START):
            if name not in table.column_names:
                continue
            times = table.column(name).combine_chunks()
            if pa.types.is_struct(times.type):
                times = times.field(0)
            if pa.types.is_int64(times.type) and times.null_count < len(times):
                least = int(times.drop_null().to_numpy().min())
                self._oldest_ms = least if self._oldest_ms is None else min(least, self._oldest_ms)

    def _add_timers(self, table: pa.Table) -> None:
        domains = table.column(TIMER_DOMAIN).to_pylist()
        times = table.column(TIMER_TIME).to_numpy()
        for domain in set(domains):
            own = times[np.array([one == domain for one in domains])]
            self._timers.setdefault(domain, []).append(own)


def _timer_figures(domain: str, pieces: list[Times], now_ms: int | None) -> TimerFigures:
    times = np.concatenate(pieces)
    place_count = len(TIMER_DUE_LIMITS_MS) + 1
    if now_ms is None:
        counts = [0] * (place_count - 1) + [len(times)]
    else:
        limits = np.array([min(now_ms + limit, 2**63 - 1) for limit in TIMER_DUE_LIMITS_MS])
        places = np.searchsorted(limits, times, side="left")
        counts = np.bincount(places, minlength=place_count).tolist()
    return TimerFigures(domain, now_ms, int(times.min()), tuple(counts))


def _size_of(item: tuple[Hashable, _Amount]) -> int:
    return item[1].size_bytes


def _count_of(item: tuple[Hashable, _Amount]) -> int:
    return item[1].row_count


def _hashable(key: Any) -> Hashable:
    """Return a key from Arrow in a hashable form: structs as tuples of names and values."""
    if isinstance(key, dict):
        return _Fields((name, _hashable(value)) for name, value in key.items())
    return tuple(map(_hashable, key)) if isinstance(key, list) else key


class _Fields(tuple[tuple[str, Hashable], ...]):
    """The fields of a struct."""

    __slots__ = ()


def _plain(key: Hashable) -> Any:
    if isinstance(key, _Fields):
        return {name: _plain(value) for name, value in key}
    return key


def _shown_pickle(content: bytes) -> str:
    (value,) = unpickle_values([content])
    return short_repr(value)
