"""Edits of open windows: checks that each window has a timer, and derives timers for windows that an edit writes.

A window with contents needs a timer that clears it, or it stays for ever. The state of a window has the window as
namespace; merging windows keep their contents under a state window, which `merging-window-set` names. The time at which
a window is cleared is not stored, so that only the existence of a timer at or after its end can be checked. Rules that
the parent breaks, as with a trigger that purges, are not applied to the edited savepoint.

A window operator sets two timers for each window: one at its last millisecond, at which a trigger by event time or by
the clock fires, and one that clears it when it accepts no more records. The allowed lateness is not stored, and must be
given. Source: Flink WindowOperator (cleanupTime), EventTimeTrigger, MergingWindowSet.
"""

import dataclasses
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa

from headrace.checkpoint.handles import NO_FILE, StateChunk, StateTable
from headrace.checkpoint.metadata import CheckpointMetadata, OperatorSnapshot, StateChange
from headrace.checkpoint.storage.snapshot_files import SnapshotReader
from headrace.core.elements import MAX_WATERMARK, MIN_TIMESTAMP
from headrace.state.columns import (
    EVENT_DOMAIN,
    KEY,
    KEY_GROUP,
    MAP_KEY,
    NAMESPACE,
    PROCESSING_DOMAIN,
    TIMER_DOMAIN,
    TIMER_SERVICE,
    TIMER_TIME,
    VALUE,
)
from headrace.state_processor.edited_rows import write_chunks
from headrace.state_processor.edits import (
    Edit,
    EditContext,
    Edited,
    with_chunks_added,
    with_operator,
)
from headrace.state_processor.errors import EditRefusedError, StateProcessorError, UnknownStateError
from headrace.state_processor.key_hashing import hashable_rows
from headrace.state_processor.selection import operator_in
from headrace.state_processor.stored_state import StoredChunk, StoredState, chunk_rows, states_of

_MERGING: Final = "merging-window-set"
_CONTENTS: Final = "window-contents"
_Entry = tuple[Hashable, Hashable]
"""A key and a window."""
_SERVICE: Final = "timers"
"""Name of the timers of window operators."""


@dataclass
class _Windows:
    """Window state of one subtask, by key and window. `timers`: the latest timer of each, epoch ms."""

    contents: dict[_Entry, str] = field(default_factory=dict[_Entry, str])
    others: dict[_Entry, str] = field(default_factory=dict[_Entry, str])
    timers: dict[_Entry, int] = field(default_factory=dict[_Entry, int])
    merging: dict[_Entry, Hashable] | None = None

    def without_timer(self) -> dict[_Entry, str]:
        """Return the open windows that no timer will clear, each with the name of a state that has contents for it."""
        live = dict(self.others)
        live |= self.contents if self.merging is None else dict.fromkeys(self.merging, _MERGING)
        return {
            entry: state
            for entry, state in live.items()
            if self.timers.get(entry, MIN_TIMESTAMP) < _end_ms(entry[1]) - 1
        }


def check_windows(
    parent: CheckpointMetadata, edited: CheckpointMetadata, reader: SnapshotReader
) -> None:
    """Raise EditRefusedError for the first window of an edited operator with a problem that the parent does not have.

    Only subtasks that the edit changed are read, and the windows of one of them are in memory at a time.
    """
    # Edits keep the position of every operator, also of one that gets another uid.
    for old, owner in zip(parent.operators, edited.operators, strict=True):
        if old.subtasks == owner.subtasks:
            continue
        before, after = window_states(parent, old), window_states(edited, owner)
        known: set[_Entry] | None = None
        for index in sorted(owner.subtasks):
            states = of_subtask(after, index)
            if states == of_subtask(before, index):
                continue
            problems = _problems(states, reader)
            if problems and known is None:
                known = _known_problems(before, old, reader)
            for entry, (state, reason) in problems.items():
                if entry not in (known or ()):
                    (key, window) = entry
                    shown = dict(window) if isinstance(window, tuple) else window
                    row = {"key": key, "window": shown}
                    raise EditRefusedError(f"{state} of operator {owner.title}", row, reason)


def _known_problems(
    states: Sequence[StoredState], owner: OperatorSnapshot, reader: SnapshotReader
) -> set[_Entry]:
    return {
        entry for index in owner.subtasks for entry in _problems(of_subtask(states, index), reader)
    }


def _problems(
    states: Sequence[StoredState], reader: SnapshotReader
) -> dict[_Entry, tuple[str, str]]:
    found = _windows_of(states, reader)
    problems: dict[_Entry, tuple[str, str]] = {}
    if found.merging is not None:
        held = {(key, window) for (key, _), window in found.merging.items()}
        for entry, state in found.contents.items():
            if entry not in held:
                problems[entry] = (state, f"is not the state window of any window in '{_MERGING}'")
        for (key, window), state_window in found.merging.items():
            if (key, state_window) not in found.contents:
                reason = f"has a state window without contents in '{_CONTENTS}'"
                problems[key, window] = (_MERGING, reason)
    for entry, state in found.without_timer().items():
        last_ms = _end_ms(entry[1]) - 1
        reason = (
            f"is a window without a timer at {last_ms} or later, so that it would never be cleared"
        )
        problems.setdefault(entry, (state, reason))
    return problems


def windows_without_timer(
    states: Sequence[StoredState], reader: SnapshotReader
) -> Iterator[pa.Table]:
    """Yield `key_group`, `key` and `namespace` of the open windows of one subtask that no timer would clear."""
    missing = set(_windows_of(states, reader).without_timer())
    has_merging = any(map(_is_merging_set, states))
    for state in states:
        if state.table is not StateTable.KEYED or _is_merging_set(state) != has_merging:
            continue
        names = [KEY_GROUP, KEY, MAP_KEY if has_merging else NAMESPACE]
        for chunk in state.chunks:
            for table in chunk_rows(state, chunk, reader):
                rows = table.select(names).rename_columns([KEY_GROUP, KEY, NAMESPACE])
                places: list[int] = []
                for place, entry in enumerate(hashable_rows(rows, [KEY, NAMESPACE])):
                    if entry in missing:
                        missing.discard(entry)
                        places.append(place)
                yield rows.take(pa.array(places, pa.int64()))


def _windows_of(states: Sequence[StoredState], reader: SnapshotReader) -> _Windows:
    found = _Windows()
    keyed = [one for one in states if one.table is StateTable.KEYED]
    for state in keyed:
        if _is_merging_set(state):
            rows = _rows(state, [KEY, MAP_KEY, VALUE], reader)
            found.merging = {(key, window): value for key, window, value in rows}
            continue
        entries = found.contents if state.name.startswith(_CONTENTS) else found.others
        for key, window in _rows(state, [KEY, NAMESPACE], reader):
            entries.setdefault((key, window), f"keyed state '{state.name}'")
    if found.merging is not None:
        found.others.clear()  # some are kept under the live window and some under its state window
    if not found.contents and not found.others and not found.merging:
        return found
    for state in states:
        if state.table is StateTable.TIMERS:
            for key, window, ts in _rows(state, [KEY, NAMESPACE, TIMER_TIME], reader):
                found.timers[key, window] = max(ts, found.timers.get((key, window), ts))
    return found


def window_states(metadata: CheckpointMetadata, owner: OperatorSnapshot) -> list[StoredState]:
    """Return the states of an operator by window, and its timers of windows."""
    states = states_of(metadata, owner, (StateTable.KEYED, StateTable.TIMERS))
    return [one for one in states if _is_merging_set(one) or _are_windows(one.schema, NAMESPACE)]


def of_subtask(states: Sequence[StoredState], index: int) -> list[StoredState]:
    """Return the states with the chunks of one subtask, under a title that does not depend on the operator's name."""
    return [
        dataclasses.replace(
            one,
            operator="",
            chunks=tuple(chunk for chunk in one.chunks if chunk.subtask_index == index),
        )
        for one in states
    ]


def _is_merging_set(state: StoredState) -> bool:
    is_keyed = state.table is StateTable.KEYED
    return is_keyed and state.name == _MERGING and _are_windows(state.schema, MAP_KEY)


def _are_windows(schema: pa.Schema, name: str) -> bool:
    """Return whether a column contains time windows; other windows have no known end."""
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


def deriving_timers(operator: str, allowed_lateness_ms: int, *, is_by_clock: bool) -> Edit:
    """Return an edit that adds the timers that a job sets to open time windows without a timer at their end or later.

    The open windows of one subtask are in memory at a time. StateProcessorError, UnknownStateError.
    """
    if allowed_lateness_ms < 0:
        raise StateProcessorError(
            f"{allowed_lateness_ms} ms is not a valid allowed lateness: it must be 0 or more"
        )
    if is_by_clock and allowed_lateness_ms:
        raise StateProcessorError(
            "windows in processing time have no allowed lateness: leave it out"
        )

    def edit(metadata: CheckpointMetadata, context: EditContext) -> Edited:
        owner = operator_in(metadata, operator)
        states = window_states(metadata, owner)
        windows = [one for one in states if one.table is StateTable.KEYED]
        if not windows:
            raise UnknownStateError(f"operator {owner.title} has no time windows", [])
        timers = _timers_of(metadata, owner, windows[0])
        added = 0
        for index in sorted(owner.subtasks):
            rows = _timer_rows(
                windows_without_timer(of_subtask(states, index), context.reader),
                timers,
                allowed_lateness_ms,
                PROCESSING_DOMAIN if is_by_clock else EVENT_DOMAIN,
            )
            if rows is None:
                continue
            added += rows.num_rows
            owner = with_chunks_added(owner, write_chunks(timers, rows, context.writer))
        before = timers.row_count
        change = StateChange(
            owner.title, timers.name, "timers derived", before, before + added, added_count=added
        )
        return with_operator(metadata, owner, owner), [change]

    return edit


def _timers_of(
    metadata: CheckpointMetadata, owner: OperatorSnapshot, windows: StoredState
) -> StoredState:
    """Return the operator's timers, or an empty state of timers with the types of its keys and windows."""
    known = states_of(metadata, owner, (StateTable.TIMERS,))
    if known and NAMESPACE in known[0].schema.names:
        return known[0]
    name = known[0].name if known else _SERVICE
    nothing = StoredChunk(0, StateChunk(StateTable.TIMERS, name, 0, NO_FILE))
    schema = pa.schema(
        [
            pa.field(TIMER_SERVICE, pa.string()),
            pa.field(TIMER_DOMAIN, pa.string()),
            pa.field(TIMER_TIME, pa.int64()),
            windows.schema.field(KEY_GROUP),
            windows.schema.field(KEY),
            pa.field(NAMESPACE, _window_type(windows)),
        ]
    )
    return StoredState(
        owner.title,
        StateTable.TIMERS,
        name,
        owner.parallelism,
        owner.max_parallelism,
        known[0].chunks if known else (nothing,),
        schema,
    )


def _window_type(windows: StoredState) -> pa.DataType:
    name = NAMESPACE if NAMESPACE in windows.schema.names else MAP_KEY
    return windows.schema.field(name).type


def _timer_rows(
    windows: Iterator[pa.Table], timers: StoredState, allowed_lateness_ms: int, domain: str
) -> pa.Table | None:
    """Return the timers of windows, in order of key group; None if there are none."""
    found = [table for table in windows if table.num_rows]
    if not found:
        return None
    rows = pa.concat_tables(found).combine_chunks()
    ends: list[int] = rows.column(NAMESPACE).chunk(0).field("end").to_pylist()
    times = [[end - 1, min(end - 1 + allowed_lateness_ms, MAX_WATERMARK)] for end in ends]
    per_window = 2 if allowed_lateness_ms else 1
    order = np.repeat(np.argsort(rows.column(KEY_GROUP).to_numpy(), kind="stable"), per_window)
    rows = rows.take(pa.array(order))
    count = rows.num_rows
    columns = {
        TIMER_SERVICE: pa.array([timers.name] * count),
        TIMER_DOMAIN: pa.array([domain] * count),
        TIMER_TIME: pa.array(
            [times[place][number % per_window] for number, place in enumerate(order)], pa.int64()
        ),
        **{name: rows.column(name) for name in (KEY_GROUP, KEY, NAMESPACE)},
    }
    return pa.table(columns, schema=timers.schema)
