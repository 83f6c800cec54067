"""Data in flight: stored with a checkpoint taken at any moment, in any way, and begun with at any parallelism."""

import random
from collections import Counter

import pyarrow as pa
import pytest

from headrace.checkpoint.errors import MetadataError
from headrace.checkpoint.handles import ChannelPart, ChannelRole
from headrace.core.barriers import AlignmentMode, CheckpointBarrier, CheckpointOptions
from headrace.core.elements import PlacedMarker, Watermark, WatermarkStatus
from headrace.core.ids import OperatorId
from headrace.graph.job_graph import PartitionerKind, VertexKind
from headrace.network.partitions.in_flight_output import InFlightOutput
from headrace.task.checkpointing.channel_state import (
    CapturedFrame,
    ChannelStates,
    frames_of,
    tables_of,
)
from tests.unit.task.checkpointing.in_flight import Job
from tests.unit.task.in_flight_tasks import Checkpoint, environment_of, vertex_of
from tests.unit.task.keyed_rows import order_of, owner_of

ALIGNED = CheckpointOptions()
TIMEOUT = CheckpointOptions(aligned_timeout_ms=100)
UNALIGNED = CheckpointOptions(alignment=AlignmentMode.UNALIGNED)
ROW_COUNT = 60
SENDER = OperatorId(b"s" * 16)
HASH, REBALANCE = PartitionerKind.HASH, PartitionerKind.REBALANCE


def barrier(options: CheckpointOptions) -> CheckpointBarrier:
    return CheckpointBarrier(1, 0, options)


ACTS = (
    *("send", "send and flush", "network", "network", "process") * 3,
    *("begin", "begin", "time out output", "time out input"),
)


def played(job: Job, chance: random.Random, options: CheckpointOptions = UNALIGNED) -> Checkpoint:
    """A checkpoint at some moment, of which each part is taken at a moment of its own."""
    for index in range(len(job.senders)):
        job.send(index, 3, flushes=True)
        job.send(index, 3, flushes=True)
    for _ in range(50):
        act, index = chance.choice(ACTS), chance.randrange(4)
        match act:
            case "send" | "send and flush":
                job.send(index, 3, flushes=act != "send")
            case "network":
                job.network()
            case "process":
                job.process(index)
            case "begin":
                job.begin_checkpoint(index, barrier(options))
            case "time out output":
                job.time_out_output(index)
            case _:
                job.time_out_input(index)
    checkpoint = job.complete_checkpoint(barrier(options), is_slow=chance.random() < 0.5)
    job.close()
    return checkpoint


def rows_of_senders(count: int) -> list[list[int]]:
    return [[sender * 1000 + number for number in range(ROW_COUNT)] for sender in range(count)]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(80))
def test_every_row_is_processed_once_at_its_subtask_and_in_order(seed: int) -> None:
    chance = random.Random(seed)
    options = chance.choice([ALIGNED, TIMEOUT, TIMEOUT, UNALIGNED, UNALIGNED])
    kind = chance.choice([HASH, HASH, REBALANCE])
    senders, receivers = chance.randint(1, 3), chance.randint(1, 3)
    new_senders, new_receivers = senders, receivers
    if chance.random() < 0.6:
        new_senders, new_receivers = chance.randint(1, 3), chance.randint(1, 3)
    checkpoint = played(Job(senders, receivers, kind, rows_of_senders(senders)), chance, options)
    chunks = (checkpoint.sender_chunks, checkpoint.receiver_chunks)
    if options is ALIGNED:
        assert chunks == ([], [])
    restored = Job(new_senders, new_receivers, kind, checkpoint.left, chunks)
    restored.run_out()
    before = [value for rows in checkpoint.processed for value in rows]
    after = [value for receiver in restored.receivers for value in receiver.processed]
    sent = [value for rows in rows_of_senders(senders) for value in rows]
    assert Counter(before + after) == Counter(sent)
    if kind is REBALANCE:
        return
    for index, receiver in enumerate(restored.receivers):
        assert {owner_of(value, new_receivers) for value in receiver.processed} <= {index}
    # Also where a sender's rows that had not been sent come from another one now.
    assert all(counts == sorted(counts) for counts in order_of(before + after).values())


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(60))
def test_a_checkpoint_of_a_restored_job_stores_again_what_is_still_on_its_way(
    seed: int,
) -> None:
    chance = random.Random(seed)
    kind = chance.choice([HASH, HASH, REBALANCE])
    parallelism = [(chance.randint(1, 3), chance.randint(1, 3)) for _ in range(3)]
    if chance.random() < 0.5:
        parallelism = [parallelism[0]] * 3
    checkpoint = Checkpoint(rows_of_senders(parallelism[0][0]), [], [], [])
    sent = [value for rows in checkpoint.left for value in rows]
    read: list[int] = []
    for senders, receivers in parallelism[:2]:
        chunks = (checkpoint.sender_chunks, checkpoint.receiver_chunks)
        job = Job(senders, receivers, kind, checkpoint.left, chunks)
        checkpoint = played(job, chance, UNALIGNED)
        read += [value for rows in checkpoint.processed for value in rows]
    chunks = (checkpoint.sender_chunks, checkpoint.receiver_chunks)
    last = Job(*parallelism[2], kind, checkpoint.left, chunks)
    last.run_out()
    read += [value for receiver in last.receivers for value in receiver.processed]
    assert Counter(read) == Counter(sent)
    if kind is HASH:
        assert all(counts == sorted(counts) for counts in order_of(read).values())


def played_while_one_gate_recovers(job: Job, chance: random.Random) -> Checkpoint:
    """A checkpoint that begins on the first edge before anybody has read of the second one."""
    count = len(job.senders) // 2
    acts_of_one = ("begin", *ACTS[:5])
    for edges, acts, act_count in (((0,), acts_of_one, 200), ((0, 1), ACTS[:5], 300)):
        for _ in range(act_count):
            act, index = chance.choice(acts), chance.randrange(4)
            match act:
                case "send" | "send and flush":
                    job.send(index, 3, flushes=act != "send")
                case "network":
                    job.network()
                case "begin":
                    job.begin_checkpoint(index % count, barrier(UNALIGNED))
                case _:
                    job.process(index, chance.sample(edges, len(edges)))
        for index in range(count):
            job.begin_checkpoint(index, barrier(UNALIGNED))
    checkpoint = job.complete_checkpoint(barrier(UNALIGNED), is_slow=chance.random() < 0.5)
    job.close()
    return checkpoint


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(40))
def test_a_checkpoint_amid_the_recovery_of_two_gates_keeps_the_order_of_each(seed: int) -> None:
    chance = random.Random(seed)
    parallelism = [(chance.randint(1, 3), chance.randint(1, 2)) for _ in range(3)]
    lives = [played, played_while_one_gate_recovers]
    checkpoint = Checkpoint(rows_of_senders(2 * parallelism[0][0]), [], [], [])
    sent = [value for rows in checkpoint.left for value in rows]
    read: list[int] = []
    for (senders, receivers), live in zip(parallelism[:2], lives, strict=True):
        chunks = (checkpoint.sender_chunks, checkpoint.receiver_chunks)
        job = Job(senders, receivers, HASH, checkpoint.left, chunks, edge_count=2)
        checkpoint = live(job, chance)
        read += [value for rows in checkpoint.processed for value in rows]
    chunks = (checkpoint.sender_chunks, checkpoint.receiver_chunks)
    last = Job(*parallelism[2], HASH, checkpoint.left, chunks, edge_count=2)
    last.run_out()
    read += [value for receiver in last.receivers for value in receiver.processed]
    assert Counter(read) == Counter(sent)
    assert all(counts == sorted(counts) for counts in order_of(read).values())


@pytest.mark.parametrize("is_slow", [True, False])
def test_markers_stand_where_they_stood_where_nothing_is_dealt_anew(is_slow: bool) -> None:
    job = Job(1, 1, HASH, rows_of_senders(1))
    for _ in range(4):
        job.send(0, 3, flushes=True)
    checkpoint = job.complete_checkpoint(barrier(UNALIGNED), is_slow=is_slow)
    job.close()
    chunks = (checkpoint.sender_chunks, checkpoint.receiver_chunks)
    restored = Job(1, 1, HASH, [[]], chunks)
    restored.run_out()
    (receiver,) = restored.receivers
    # Each watermark is the number of the row in front of it.
    assert receiver.watermarks == [2, 5, 8, 11][-len(receiver.watermarks) :]
    assert receiver.watermarks
    other = Job(2, 1, HASH, [[]], chunks)
    other.run_out()
    assert other.receivers[0].watermarks == []


def test_rows_that_wait_on_either_side_are_stored_by_that_side() -> None:
    job = Job(1, 1, HASH, rows_of_senders(1))
    for _ in range(3):
        job.send(0, 4, flushes=True)
    job.cluster.loop.run_for(100)
    job.send(0, 4, flushes=False)
    checkpoint = job.complete_checkpoint(barrier(UNALIGNED), is_slow=True)
    job.close()
    parts = [
        ChannelPart.of(chunk) for chunk in (*checkpoint.sender_chunks, *checkpoint.receiver_chunks)
    ]
    assert {part.role for part in parts} == {ChannelRole.INPUT, ChannelRole.OUTPUT}
    rows = sum(
        chunk.row_count for chunk in (*checkpoint.sender_chunks, *checkpoint.receiver_chunks)
    )
    assert rows == 16


def test_the_same_rows_twice_are_refused() -> None:
    job = Job(1, 1, HASH, rows_of_senders(1))
    job.send(0, 4, flushes=True)
    checkpoint = job.complete_checkpoint(barrier(UNALIGNED))
    job.close()
    chunks = [*checkpoint.sender_chunks, *checkpoint.receiver_chunks]
    assert chunks
    with pytest.raises(MetadataError, match="twice"):
        Job(1, 1, HASH, [[]], (checkpoint.sender_chunks * 2, checkpoint.receiver_chunks * 2))


def test_rows_of_an_edge_that_is_gone_are_refused() -> None:
    job = Job(1, 1, HASH, rows_of_senders(1))
    job.send(0, 4, flushes=True)
    checkpoint = job.complete_checkpoint(barrier(UNALIGNED))
    job.close()
    (chunk,) = checkpoint.sender_chunks
    moved = type(chunk)(
        chunk.table, chunk.name, 4, chunk.file, None, chunk.attributes | {"edge": "ff" * 16}
    )
    with pytest.raises(MetadataError, match="which this job does not have"):
        Job(1, 1, HASH, [[]], ([moved], []))


def frame(
    *values: int, name: str = "value", markers: tuple[PlacedMarker, ...] = ()
) -> CapturedFrame:
    rows = pa.RecordBatch.from_arrays([pa.array(values, pa.int64())], names=[name])
    return CapturedFrame(rows, markers)


MARKERS = (PlacedMarker(1, Watermark(-(2**63))), PlacedMarker(2, WatermarkStatus(True)))


@pytest.mark.parametrize(
    ("frames", "table_count"),
    [
        ([frame(1, 2, markers=MARKERS), frame(3)], 1),
        ([CapturedFrame(None, MARKERS[:1])], 1),
        ([frame(1), CapturedFrame(None, MARKERS), frame(2)], 1),
        ([CapturedFrame(None, MARKERS), frame(1), frame(2, name="other")], 3),
    ],
)
def test_frames_survive_being_stored(frames: list[CapturedFrame], table_count: int) -> None:
    tables = list(tables_of(frames))
    assert len(tables) == table_count
    found = [each for table in tables for each in frames_of(table.content)]
    assert [(each.rows, each.markers) for each in found] == [
        (each.rows, each.markers) for each in frames
    ]


def test_anybody_can_read_what_was_in_flight() -> None:
    (table,) = tables_of([frame(1, 2, markers=MARKERS[:1])])
    stream = pa.ipc.open_stream(table.content)
    assert stream.read_all().to_pydict() == {"value": [1, 2]}
    assert stream.schema.metadata[b"headrace.markers"] == b'[[[1, "w", -9223372036854775808]]]'


@pytest.mark.parametrize("is_complete", [True, False])
def test_who_waits_to_store_what_is_in_flight_hears_of_its_checkpoint_whatever_becomes_of_it(
    is_complete: bool,
) -> None:
    states = ChannelStates(environment_of(vertex_of(SENDER, VertexKind.SOURCE, 1), 0, None), [])
    states.start_capture(7)
    capture = InFlightOutput(1)
    data = states.snapshot(7, [capture])
    told: list[str] = []
    data.on_ready(lambda: told.append("ready"))
    if is_complete:
        capture.answer(0, ())
        assert told == []
    states.stop_capture(7, is_complete=is_complete)
    assert told == ["ready"]
    assert data.is_abandoned is not is_complete and data.is_empty
    # Nobody answers for a checkpoint that is over, and nothing of it is left to the next one.
    capture.on_done(lambda: told.append("done"))
    assert told == ["ready", "done"]
    states.stop_capture(7, is_complete=True)
    capture.answer(0, ())
    assert told == ["ready", "done"]
    assert data.is_abandoned is not is_complete
