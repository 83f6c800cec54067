"""Redistributes items of operator state, splits and connectors' state among new subtasks. Pure.

No file is opened: a chunk states how many items it holds and in which mode, and an assigned chunk states which items
belong to the subtask. Source: Flink RoundRobinOperatorStateRepartitioner.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from headrace.checkpoint.handles import (
    ITEM_COUNT,
    ITEM_MODE,
    ITEM_RANGE,
    OperatorStateMode,
    StateChunk,
    StateTable,
)

ITEM_TABLES: Final = frozenset({StateTable.OPERATOR, StateTable.SPLITS, StateTable.ITEMS})

_StateName = tuple[StateTable, str]
_Copies = list[list[StateChunk]]
"""Chunks of one state, by old subtask."""


def deal_items(old: Sequence[Sequence[StateChunk]], parallelism: int) -> list[list[StateChunk]]:
    """Return the chunks for each new subtask; `old` has those of each old subtask, none if it had finished.

    UNION: each subtask has all items. BROADCAST: a new subtask has the copy of an old one. SPLIT: items stay if the
    parallelism does; otherwise they are put in order and cut into shares that differ by at most one item. The subtasks
    with an extra item rotate from state to state, so that none gets all the extra items.
    """
    dealt: list[list[StateChunk]] = [[] for _ in range(parallelism)]
    extras_start = 0
    for state in _names(old):
        copies = [[one for one in chunks if (one.table, one.name) == state] for chunks in old]
        mode = next(one for copy in copies for one in copy).attributes.get(ITEM_MODE)
        if mode == OperatorStateMode.UNION.name:
            shares = [[one for copy in copies for one in copy]] * parallelism
        elif mode == OperatorStateMode.BROADCAST.name:
            shares = _broadcast(copies, parallelism)
        elif len(old) == parallelism:
            shares = copies
        else:
            shares, extras_start = _split(copies, parallelism, extras_start)
        for chunks, share in zip(dealt, shares, strict=True):
            chunks.extend(share)
    return dealt


def _names(old: Sequence[Sequence[StateChunk]]) -> list[_StateName]:
    """Return the states in order of first appearance."""
    return list(dict.fromkeys((chunk.table, chunk.name) for chunks in old for chunk in chunks))


def _broadcast(copies: _Copies, parallelism: int) -> _Copies:
    present = [copy for copy in copies if copy]
    return [
        copies[index % len(copies)] or present[index % len(present)] for index in range(parallelism)
    ]


def _split(copies: _Copies, parallelism: int, extras_start: int) -> tuple[_Copies, int]:
    """Return the shares of all items, and the next subtask to get an extra item."""
    chunks = [one for copy in copies for one in copy]
    base, extra_count = divmod(sum(_item_count(one) for one in chunks), parallelism)
    shares: _Copies = [[] for _ in range(parallelism)]
    start = 0
    for turn in range(parallelism):
        stop = start + base + (turn < extra_count)
        shares[(extras_start + turn) % parallelism] = _items_within(chunks, start, stop)
        start = stop
    return shares, (extras_start + extra_count) % parallelism


def _items_within(chunks: Sequence[StateChunk], start: int, stop: int) -> list[StateChunk]:
    """Return the parts of chunks that hold items `start` to `stop` of the sequence of all items."""
    found: list[StateChunk] = []
    offset = 0
    for chunk in chunks:
        count = _item_count(chunk)
        first, last = max(start - offset, 0), min(stop - offset, count)
        if first < last:
            own = {ITEM_RANGE: f"{first}:{last}"} if (first, last) != (0, count) else {}
            found.append(msgspec.structs.replace(chunk, attributes={**chunk.attributes, **own}))
        offset += count
    return found


def _item_count(chunk: StateChunk) -> int:
    return int(chunk.attributes.get(ITEM_COUNT, chunk.row_count))
