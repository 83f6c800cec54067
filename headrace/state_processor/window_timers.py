"""Timers of open windows, derived: an edit that writes windows need not write the timers that fire and clear them.

A window operator sets two timers for each of its windows: one at the window's last millisecond, at which a trigger by
event time (or by the clock) fires, and one when it is too late for further records, which clears the window. How late
that is, is not stored, and has to be said. Source: Flink WindowOperator (cleanupTime), EventTimeTrigger.
"""

from collections.abc import Iterator
from typing import Final

import numpy as np
import pyarrow as pa

from headrace.checkpoint.handles import NO_FILE, StateChunk, StateTable
from headrace.checkpoint.metadata import CheckpointMetadata, OperatorSnapshot, StateChange
from headrace.core.elements import MAX_WATERMARK
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
)
from headrace.state_processor.edited_rows import write_chunks
from headrace.state_processor.edits import (
    Edit,
    EditContext,
    Edited,
    with_chunks_added,
    with_operator,
)
from headrace.state_processor.errors import StateProcessorError, UnknownStateError
from headrace.state_processor.selection import operator_in
from headrace.state_processor.stored_state import StoredChunk, StoredState, states_of
from headrace.state_processor.window_checks import (
    of_subtask,
    window_states,
    windows_without_timer,
)

_SERVICE: Final = "timers"
"""What window operators call their timers."""


def deriving_timers(operator: str, allowed_lateness_ms: int, *, is_by_clock: bool) -> Edit:
    """Give each open time window of an operator that has no timer at its end, or later, those that a job sets.

    The open windows of one subtask are in memory at a time. StateProcessorError, UnknownStateError.
    """
    if allowed_lateness_ms < 0:
        raise StateProcessorError(
            f"{allowed_lateness_ms} ms is no allowed lateness: it is 0 or more"
        )
    if is_by_clock and allowed_lateness_ms:
        raise StateProcessorError("windows by the clock know no lateness: leave it away")

    def edit(metadata: CheckpointMetadata, context: EditContext) -> Edited:
        owner = operator_in(metadata, operator)
        states = window_states(metadata, owner)
        windows = [one for one in states if one.table is StateTable.KEYED]
        if not windows:
            raise UnknownStateError(f"operator {owner.title} keeps no time windows", [])
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
    """The operator's timers, or what they would be, with the keys and windows of its states."""
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
    """The timers of windows, in order of key group; None where there is none."""
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
