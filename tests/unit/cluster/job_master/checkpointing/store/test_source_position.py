"""source_position: equal exactly where no source has read anything between two checkpoints."""

import msgspec

from headrace.checkpoint.handles import OperatorSubtaskState, StateChunk, StateFile, StateTable
from headrace.checkpoint.metadata import CheckpointMetadata, OperatorSnapshot
from headrace.cluster.job_master.checkpointing.store.metadata_builder import (
    UNKNOWN_POSITION,
    source_position,
)
from headrace.core.barriers import SnapshotKind
from tests.unit.cluster.cluster_samples import edge, job_graph, vertex

GRAPH = job_graph((vertex(1, 1), vertex(2, 1)), (edge(1, 2),))
SOURCE, SINK = (one.operators[0].operator_id for one in GRAPH.vertices)


def chunk(table: StateTable, content: bytes) -> StateChunk:
    return StateChunk(table, "s", 1, StateFile("", content, 1, content))


def position(
    *chunks: StateChunk,
    sink: bytes = b"",
    checkpoint_id: int = 1,
    coordinator_state: bytes | None = None,
    is_finished: bool = False,
) -> bytes:
    source = OperatorSnapshot(
        SOURCE,
        "source",
        1,
        128,
        subtasks={0: OperatorSubtaskState(chunks)},
        coordinator_state=coordinator_state,
        finished_subtasks=frozenset({0}) if is_finished else frozenset(),
    )
    kept = OperatorSubtaskState((chunk(StateTable.KEYED, sink),))
    behind = msgspec.structs.replace(
        source, operator_id=SINK, subtasks={0: kept}, finished_subtasks=frozenset[int]()
    )
    job_id, kind = GRAPH.job_id, SnapshotKind.CHECKPOINT
    metadata = CheckpointMetadata(
        checkpoint_id, kind, 5 * checkpoint_id, job_id, "job", "ab", 1, (source, behind)
    )
    return source_position(metadata, GRAPH)


def test_what_lies_behind_the_sources_and_event_time_say_nothing_of_their_place() -> None:
    splits = chunk(StateTable.SPLITS, b"offset 5")
    place = position(splits, chunk(StateTable.WATERMARKS, b"9"), sink=b"a")
    assert place
    assert place == position(
        splits, chunk(StateTable.WATERMARKS, b"10"), sink=b"b", checkpoint_id=2
    )


def test_records_read_splits_given_out_and_readers_that_finished_change_the_place() -> None:
    places = {
        position(chunk(StateTable.SPLITS, b"offset 5")),
        position(chunk(StateTable.SPLITS, b"offset 6")),
        position(chunk(StateTable.SPLITS, b"offset 6"), coordinator_state=b"two files left"),
        position(is_finished=True),
    }
    assert len(places) == 4 and UNKNOWN_POSITION not in places


def test_a_source_that_reads_on_and_keeps_nothing_has_no_place() -> None:
    assert position() == position(chunk(StateTable.WATERMARKS, b"9")) == UNKNOWN_POSITION
