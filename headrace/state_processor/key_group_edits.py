"""An edit that puts an operator's rows in another number of key groups, which is its max parallelism."""

import dataclasses

import msgspec
import pyarrow as pa

from headrace.checkpoint.metadata import CheckpointMetadata, StateChange
from headrace.core.key_groups import MAX_PARALLELISM_LIMIT
from headrace.state_processor.edited_rows import write_regrouped
from headrace.state_processor.edits import (
    Edit,
    EditContext,
    Edited,
    stored_rows,
    target_of,
    with_chunks_instead,
    with_operator,
)
from headrace.state_processor.errors import StateProcessorError, UnknownStateError
from headrace.state_processor.selection import operator_in
from headrace.state_processor.stored_state import BY_KEY_GROUP, states_of


def changing_max_parallelism(operator: str, max_parallelism: int) -> Edit:
    """Give all rows of an operator the key groups that their keys have among `max_parallelism`.

    All rows of one state are in memory at a time.
    """
    if not 1 <= max_parallelism <= MAX_PARALLELISM_LIMIT:
        raise StateProcessorError(
            f"{max_parallelism} is no max parallelism: it is from 1 to {MAX_PARALLELISM_LIMIT}"
        )

    def edit(metadata: CheckpointMetadata, context: EditContext) -> Edited:
        owner = operator_in(metadata, operator)
        before = owner.max_parallelism
        states = states_of(metadata, owner, sorted(BY_KEY_GROUP, key=lambda one: one.value))
        if not states:
            raise UnknownStateError(f"operator {owner.title} has no keyed state", [])
        changes: list[StateChange] = []
        for state in states:
            target = target_of(state, context)
            grouped = dataclasses.replace(state, max_parallelism=max_parallelism)
            rows = pa.concat_tables(stored_rows(state, context))
            chunks = write_regrouped(
                dataclasses.replace(target, state=grouped), rows, context.writer
            )
            owner = with_chunks_instead(owner, state, chunks)
            action = f"{state.table.value} in {max_parallelism} key groups instead of {before}"
            count = state.row_count
            changes.append(StateChange(state.operator, state.name, action, count, count))
        owner = msgspec.structs.replace(owner, max_parallelism=max_parallelism)
        return with_operator(metadata, owner, owner), changes

    return edit
