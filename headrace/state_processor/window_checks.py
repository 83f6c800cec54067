"""Open windows of an edited savepoint: who holds anything must have a timer that will clear it, or it stays for ever.

What an operator keeps for a window is under the window, and goes with the window's timer, which is not before the end
of the window. Windows that grow together keep their contents under a state window, which `merging-window-set` names.
How late a window is cleared is not stored: that there is such a timer at all can be checked. What the parent does not
hold to itself, as with a trigger that purges, is not asked of the edited one either.
Source: Flink WindowOperator, MergingWindowSet.
"""

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa

from headrace.checkpoint.handles import StateTable
from headrace.checkpoint.metadata import CheckpointMetadata, OperatorSnapshot
from headrace.checkpoint.snapshot_files import SnapshotReader
from headrace.state.columns import KEY, MAP_KEY, NAMESPACE, VALUE
from headrace.state_processor.errors import EditRefusedError
from headrace.state_processor.key_hashing import hashable_rows
from headrace.state_processor.stored_state import StoredState, chunk_rows, chunks_of, stored_state

_MERGING: Final = "merging-window-set"
_CONTENTS: Final = "window-contents"
_Entry = tuple[Hashable, Hashable]
"""A key and a window."""


@dataclass
class _Windows:
    """What one operator has by key and window. `timers`: the latest of each, epoch ms."""

    contents: dict[_Entry, str] = field(default_factory=dict[_Entry, str])
    others: dict[_Entry, str] = field(default_factory=dict[_Entry, str])
    timers: dict[_Entry, int] = field(default_factory=dict[_Entry, int])
    merging: dict[_Entry, Hashable] | None = None


def check_windows(
    parent: CheckpointMetadata, edited: CheckpointMetadata, reader: SnapshotReader
) -> None:
    """EditRefusedError for the first window of an edited operator that its parent would not have left like that."""
    before = {one.operator_id: one for one in parent.operators}
    for owner in edited.operators:
        old = before.get(owner.operator_id)
        if old is not None and old.subtasks == owner.subtasks:
            continue
        problems = _problems(edited, owner, reader)
        if not problems:
            continue
        known = {} if old is None else _problems(parent, old, reader)
        for entry, (state, reason) in problems.items():
            if entry not in known:
                (key, window) = entry
                row = {"key": key, "window": dict(window) if isinstance(window, tuple) else window}
                raise EditRefusedError(f"{state} of operator {owner.title}", row, reason)


def _problems(
    metadata: CheckpointMetadata, owner: OperatorSnapshot, reader: SnapshotReader
) -> dict[_Entry, tuple[str, str]]:
    found = _windows_of(metadata, owner, reader)
    problems: dict[_Entry, tuple[str, str]] = {}
    live = dict(found.others)
    if found.merging is None:
        live |= found.contents
    else:
        held = {(key, window) for (key, _), window in found.merging.items()}
        for entry, state in found.contents.items():
            if entry not in held:
                problems[entry] = (state, f"is the state window of no window in '{_MERGING}'")
        for (key, window), state_window in found.merging.items():
            live[key, window] = _MERGING
            if (key, state_window) not in found.contents:
                reason = f"has a state window of which '{_CONTENTS}' holds nothing"
                problems[key, window] = (_MERGING, reason)
    for entry, state in live.items():
        end_ms = _end_ms(entry[1])
        if found.timers.get(entry, end_ms - 2) < end_ms - 1:
            reason = f"is a window with no timer at {end_ms - 1} or later, so that nothing would ever clear it"
            problems.setdefault(entry, (state, reason))
    return problems


def _windows_of(
    metadata: CheckpointMetadata, owner: OperatorSnapshot, reader: SnapshotReader
) -> _Windows:
    found = _Windows()
    for state in _states(metadata, owner, StateTable.KEYED):
        if state.name == _MERGING and _are_windows(state.schema, MAP_KEY):
            rows = _rows(state, [KEY, MAP_KEY, VALUE], reader)
            found.merging = {(key, window): value for key, window, value in rows}
        elif _are_windows(state.schema, NAMESPACE):
            entries = found.contents if state.name.startswith(_CONTENTS) else found.others
            for key, window in _rows(state, [KEY, NAMESPACE], reader):
                entries.setdefault((key, window), f"keyed state '{state.name}'")
    if found.merging is not None:
        found.others.clear()  # some are kept under the live window and some under its state window
    if not found.contents and not found.others and not found.merging:
        return found
    for state in _states(metadata, owner, StateTable.TIMERS):
        if _are_windows(state.schema, NAMESPACE):
            for key, window, ts in _rows(state, [KEY, NAMESPACE, "ts"], reader):
                found.timers[key, window] = max(ts, found.timers.get((key, window), ts))
    return found


def _states(
    metadata: CheckpointMetadata, owner: OperatorSnapshot, table: StateTable
) -> Iterator[StoredState]:
    for name in sorted({one.chunk.name for one in chunks_of(owner, table)}):
        yield stored_state(metadata, table, owner.operator_id.hex(), name)


def _are_windows(schema: pa.Schema, name: str) -> bool:
    """Whether a column holds time windows: others have no end that anybody could tell."""
    if name not in schema.names or not pa.types.is_struct(schema.field(name).type):
        return False
    return [one.name for one in schema.field(name).type] == ["start", "end"]


def _rows(
    state: StoredState, names: list[str], reader: SnapshotReader
) -> Iterator[tuple[Any, ...]]:
    for chunk in state.chunks:
        for table in chunk_rows(state, chunk, reader):
            yield from hashable_rows(table, names)


def _end_ms(window: Any) -> int:
    return dict(window)["end"]
