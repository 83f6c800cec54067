"""Assigns the state of a snapshot to the subtasks of a new graph. Pure.

Operators are matched by id, that is by uid. Keyed state follows its key groups; `operator_state_repartitioner`
redistributes items of operator state, splits and the like; event time continues from the minimum of the old subtasks.
Source: Flink StateAssignmentOperation, Checkpoints.loadAndValidateCheckpoint, VertexFinishedStateChecker.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import msgspec

from headrace.checkpoint.errors import (
    FinishedOperatorsError,
    MaxParallelismError,
    UnclaimedStateError,
)
from headrace.checkpoint.handles import (
    NO_FILE,
    OperatorSubtaskState,
    StateChunk,
    StateTable,
    SubtaskRestore,
    concerns_subtask,
)
from headrace.checkpoint.metadata import CheckpointMetadata, OperatorSnapshot
from headrace.cluster.job_master.checkpointing.assignment.operator_state_repartitioner import (
    ITEM_TABLES,
    deal_items,
)
from headrace.core.ids import ExecutionVertexId, OperatorId
from headrace.core.key_groups import key_group_range
from headrace.graph.job_graph import ChainedOperator, JobGraph, JobVertex
from headrace.graph.operator_ids import uid_hash_of


@dataclass(frozen=True)
class StateAssignment:
    """State from which a restored job starts. `graph` has the max parallelism that the state requires."""

    graph: JobGraph
    subtasks: Mapping[ExecutionVertexId, SubtaskRestore]
    coordinator_states: Mapping[OperatorId, bytes]
    left_behind: tuple[OperatorSnapshot, ...] = ()
    """Operators of the snapshot whose state no operator of the graph claims."""
    without_state: tuple[ChainedOperator, ...] = ()
    """Operators of the graph that have a uid but no state in the snapshot."""


def assign_state(
    graph: JobGraph, metadata: CheckpointMetadata, *, ignores_unclaimed: bool = False
) -> StateAssignment:
    """Assign all state of a snapshot to the subtasks of a graph.

    UnclaimedStateError, MaxParallelismError or FinishedOperatorsError if the graph does not fit the snapshot.
    """
    claims = _claims(graph, metadata)
    claimed = {old.operator_id for old in claims.values()}
    unclaimed = tuple(
        old for old in metadata.operators if old.has_state and old.operator_id not in claimed
    )
    if unclaimed and not ignores_unclaimed:
        raise UnclaimedStateError(
            metadata.checkpoint_id,
            [old.title for old in unclaimed],
            [operator.uid or operator.name for _, operator in _operators(graph)],
        )
    graph = _with_restored_max_parallelism(graph, claims)
    subtasks: dict[ExecutionVertexId, SubtaskRestore] = {}
    for vertex in graph.vertices:
        subtasks.update(_restores(vertex, claims, metadata.checkpoint_id))
    coordinator_states = {
        operator_id: old.coordinator_state
        for operator_id, old in claims.items()
        if old.coordinator_state is not None
    }
    without_state = tuple(
        operator
        for _, operator in _operators(graph)
        if operator.uid is not None and operator.operator_id not in claims
    )
    return StateAssignment(graph, subtasks, coordinator_states, unclaimed, without_state)


def _operators(graph: JobGraph) -> Iterator[tuple[JobVertex, ChainedOperator]]:
    for vertex in graph.vertices:
        for operator in vertex.operators:
            yield vertex, operator


def _claims(graph: JobGraph, metadata: CheckpointMetadata) -> dict[OperatorId, OperatorSnapshot]:
    """Find the snapshot of each operator of the graph: by its id, which may be a raw hash, else by its uid."""
    stored = {old.operator_id: old for old in metadata.operators}
    claims: dict[OperatorId, OperatorSnapshot] = {}
    for _, operator in _operators(graph):
        old = stored.get(operator.operator_id)
        if old is None and operator.uid is not None:
            old = stored.get(uid_hash_of(operator.uid))
        if old is not None:
            claims[operator.operator_id] = old
    return claims


def _with_restored_max_parallelism(
    graph: JobGraph, claims: Mapping[OperatorId, OperatorSnapshot]
) -> JobGraph:
    vertices = tuple(_with_max_parallelism_of(vertex, claims) for vertex in graph.vertices)
    return msgspec.structs.replace(graph, vertices=vertices)


def _with_max_parallelism_of(
    vertex: JobVertex, claims: Mapping[OperatorId, OperatorSnapshot]
) -> JobVertex:
    """Return a vertex with the number of key groups that its keyed state has."""
    for operator in vertex.operators:
        old = claims.get(operator.operator_id)
        if old is None or not _is_keyed(old) or old.max_parallelism == vertex.max_parallelism:
            continue
        if vertex.has_derived_max_parallelism and vertex.parallelism <= old.max_parallelism:
            vertex = msgspec.structs.replace(
                vertex, max_parallelism=old.max_parallelism, has_derived_max_parallelism=False
            )
        else:
            raise MaxParallelismError(
                old.title, old.max_parallelism, vertex.parallelism, vertex.max_parallelism
            )
    return vertex


def _is_keyed(old: OperatorSnapshot) -> bool:
    return any(chunk.key_groups for state in old.subtasks.values() for chunk in state.chunks)


def _restores(
    vertex: JobVertex, claims: Mapping[OperatorId, OperatorSnapshot], checkpoint_id: int
) -> dict[ExecutionVertexId, SubtaskRestore]:
    old_operators = {
        operator.operator_id: claims[operator.operator_id]
        for operator in vertex.operators
        if operator.operator_id in claims
    }
    is_finished = _is_finished(vertex, old_operators)
    assigned = {
        operator_id: _assign_operator(old, vertex.parallelism, vertex.max_parallelism)
        for operator_id, old in old_operators.items()
    }
    return {
        ExecutionVertexId(vertex.vertex_id, index): SubtaskRestore(
            checkpoint_id,
            {
                operator_id: OperatorSubtaskState(tuple(chunks[index]))
                for operator_id, chunks in assigned.items()
            },
            is_finished,
        )
        for index in range(vertex.parallelism)
    }


def _is_finished(vertex: JobVertex, old_operators: Mapping[OperatorId, OperatorSnapshot]) -> bool:
    """Return whether the vertex had finished.

    FinishedOperatorsError if one of its operators is new or had not finished.
    """
    finished = [old for old in old_operators.values() if old.is_finished]
    if finished and len(finished) < len(vertex.operators):
        ended = {old.operator_id for old in finished}
        others = [one.name for one in vertex.operators if one.operator_id not in ended]
        raise FinishedOperatorsError([old.title for old in finished], others)
    return bool(finished)


def _assign_operator(
    old: OperatorSnapshot, parallelism: int, max_parallelism: int
) -> list[list[StateChunk]]:
    """Return the chunks of one operator for each new subtask."""
    states = [
        old.subtasks.get(index, OperatorSubtaskState()).chunks for index in range(old.parallelism)
    ]
    items = deal_items(
        [[chunk for chunk in chunks if chunk.table in ITEM_TABLES] for chunks in states],
        parallelism,
    )
    assigned: list[list[StateChunk]] = []
    for index in range(parallelism):
        groups = key_group_range(index, parallelism, max_parallelism)
        concerned = _old_subtasks(old, index, parallelism, groups)
        keyed = [chunk for chunk in chain.from_iterable(states) if _overlaps(chunk, groups)]
        bound = [
            chunk
            for chunk in chain.from_iterable(states)
            if concerns_subtask(chunk, index, parallelism)
        ]
        watermark = _least_watermark([states[subtask] for subtask in concerned])
        assigned.append([*keyed, *items[index], *bound, *watermark])
    return assigned


def _old_subtasks(
    old: OperatorSnapshot, index: int, parallelism: int, groups: range
) -> Sequence[int]:
    """Return the old subtasks from whose event time a new subtask continues."""
    if old.parallelism == parallelism:
        return (index,)
    if not _is_keyed(old):
        # The new subtask may receive rows of any old subtask.
        return range(old.parallelism)
    return [
        subtask
        for subtask in range(old.parallelism)
        if _meet(groups, key_group_range(subtask, old.parallelism, old.max_parallelism))
    ]


def _overlaps(chunk: StateChunk, groups: range) -> bool:
    if chunk.key_groups is None:
        return False
    first, last = chunk.key_groups
    return _meet(groups, range(first, last + 1))


def _meet(one: range, other: range) -> bool:
    return max(one.start, other.start) < min(one.stop, other.stop)


def _least_watermark(states: Sequence[Sequence[StateChunk]]) -> list[StateChunk]:
    """Return one chunk with the minimum of each watermark; none if no subtask has any."""
    found = [chunk for chunks in states for chunk in chunks if chunk.table is StateTable.WATERMARKS]
    if not found:
        return []
    attributes = {
        key: str(min(int(chunk.attributes[key]) for chunk in found if key in chunk.attributes))
        for key in sorted({key for chunk in found for key in chunk.attributes})
    }
    return [StateChunk(StateTable.WATERMARKS, "", 0, NO_FILE, None, attributes)]
