"""One producer's connection, frame by frame: credit, order, commit, and what is a violation of the protocol."""

from collections.abc import Callable
from typing import Any, cast

import pyarrow as pa
import pytest

from headrace.core.elements import EndOfData, StopMode, StreamEvent
from headrace.core.ids import ResultPartitionId
from headrace.network.batches.sealed_batch import SealedBatch, encode_event, fingerprint_of
from headrace.network.errors import ConnectionLostError, ProtocolError, StorageError
from headrace.network.stored.partitioned_file import PartitionedFile
from headrace.network.stored.sort_merge_partition import SortMergePartition
from headrace.network.wire.frames import (
    ALL_SUBPARTITIONS,
    AddCredit,
    Close,
    Error,
    PartitionRequest,
    PushAccept,
    PushCommit,
    PushData,
    PushEvent,
    PushOpen,
    Schema,
)
from headrace.network.wire.framing import Frame, encode
from headrace.shuffle_service.push_session import PushNotAllowedError, PushSession, WriteGrant
from tests.unit.network.exchange import partition_id

ROWS = pa.record_batch({"value": pa.array([1, 2, 3])})
SCHEMA = ROWS.schema.serialize().to_pybytes()
FINGERPRINT = fingerprint_of(SCHEMA)
OPEN = PushOpen(0, partition_id(), 2)


class ScriptedWriter:
    """A SortMergePartition that keeps what it is given."""

    subpartition_count, written_bytes, file = 2, 10, cast(PartitionedFile, None)
    maximum, segment_size = 8, 1000

    def __init__(self) -> None:
        self.stored: list[tuple[int, Any]] = []
        self.calls: list[str] = []
        self.error: Exception | None = None
        self.finish_error: Exception | None = None
        self.pool = self
        self.file = cast(PartitionedFile, self)
        self.data = self
        self.size = 10

    def try_lease(self, size_bytes: int, references: int) -> "ScriptedWriter":
        return self

    def emit(self, index: int, sealed: SealedBatch, lease: object) -> None:
        if self.error is not None:
            raise self.error
        self.stored.append((index, sealed.row_count))

    def broadcast(self, sealed: SealedBatch, lease: object) -> None:
        self.stored.append((ALL_SUBPARTITIONS, sealed.row_count))

    def emit_event(self, event: StreamEvent) -> None:
        self.stored.append((ALL_SUBPARTITIONS, event))

    def finish(self) -> None:
        self.calls.append("finish")
        if self.finish_error is not None:
            raise self.finish_error

    def close(self) -> None:
        self.calls.append("close")

    def release(self) -> None:
        self.calls.append("release")


class World:
    """Everything but the session; what it posts runs at once."""

    peer = "push"
    batch_bytes_max = 1000

    def __init__(self) -> None:
        self.writer = ScriptedWriter()
        self.begin_error: Exception | None = None
        self.posted: list[Callable[[], None]] | None = None
        self.refusal: str | None = None
        self.commit_refusal: str | None = None
        self.has_room = True
        self.ended_count = self.lost_count = 0
        self.discards: list[ResultPartitionId] = []
        self.session = PushSession(
            cast(Any, self), cast(Any, self), cast(Any, self), cast(Any, self), self._lost
        )

    def _lost(self) -> None:
        self.lost_count += 1

    def wake(self) -> None: ...

    def submit(self, job: Callable[[], None]) -> None:
        job()

    def post(self, callback: Callable[[], None]) -> None:
        if self.posted is None:
            callback()
        else:
            self.posted.append(callback)

    def open_push(self, session: PushSession, key: ResultPartitionId) -> WriteGrant:
        if self.refusal is not None:
            raise PushNotAllowedError(self.refusal)
        return WriteGrant(pages=8, credit_count=2)

    def end_push(self, session: PushSession) -> None:
        self.ended_count += 1

    def create_writer(self, key: ResultPartitionId, count: int, pages: int) -> SortMergePartition:
        if self.begin_error is not None:
            raise self.begin_error
        return cast(SortMergePartition, self.writer)

    def grown(self, key: ResultPartitionId, size_bytes: int) -> bool:
        return self.has_room

    def commit(self, key: ResultPartitionId, file: PartitionedFile) -> str | None:
        return self.commit_refusal

    def discarded(self, key: ResultPartitionId) -> None:
        self.discards.append(key)

    def take(self, *frames: Frame) -> None:
        for each in frames:
            body = getattr(each, "body", b"")
            if len(body):
                self.session.check_body(type(each), each, len(body))
            self.session.frame_received(each)

    def said(self) -> bytes:
        return b"".join(bytes(piece) for piece in self.session.take_output(1 << 20))


def data(sequence: int, index: int = 0) -> PushData:
    return PushData(0, index, sequence, 3, FINGERPRINT, (), ROWS.serialize().to_pybytes())


def encoded(*frames: Frame) -> bytes:
    return b"".join(bytes(piece) for each in frames for piece in encode(each))


@pytest.fixture
def world() -> World:
    world = World()
    world.take(OPEN)
    assert world.said() == encoded(PushAccept(0, 2, 1000))
    world.take(Schema(0, FINGERPRINT, SCHEMA))
    return world


def test_credit_comes_back_with_each_batch_that_was_stored(world: World) -> None:
    world.take(data(0), data(1, ALL_SUBPARTITIONS), data(2, 1))
    assert world.writer.stored == [(0, 3), (ALL_SUBPARTITIONS, 3), (1, 3)]
    assert world.said() == encoded(AddCredit(0, 1), AddCredit(0, 1), AddCredit(0, 1))


def test_a_commit_is_repeated_when_all_of_it_is_stored(world: World) -> None:
    kind, value, _ = encode_event(EndOfData(StopMode.DRAIN))
    world.take(data(0), PushEvent(0, 1, kind, value))
    world.said()
    world.take(PushCommit(0, 2))
    assert world.said() == encoded(PushCommit(0, 2))
    assert world.writer.calls == ["finish", "close"]
    assert world.discards == [] and world.ended_count == 1


@pytest.mark.parametrize("before", [(), (data(0),)])
def test_what_ends_without_a_commit_is_deleted_once(
    world: World, before: tuple[Frame, ...]
) -> None:
    world.take(*before)
    with pytest.raises(ConnectionLostError):
        world.take(Close())
    world.session.lost(ConnectionLostError("push", "gone"))
    assert world.writer.calls == ["release"]
    assert (world.discards, world.ended_count, world.lost_count) == ([partition_id()], 1, 1)


@pytest.mark.parametrize(
    ("frames", "what"),
    [
        ((OPEN,), "may not send a frame of type PushOpen"),
        ((data(1),), "element 1 was received, but 0 was expected"),
        ((data(0, 2),), "subpartition 2, but there are only 2"),
        ((PushData(0, 0, 0, 3, FINGERPRINT, (), bytes(1001)),), "1001 bytes, the maximum is 1000"),
        ((PushData(0, 0, 0, 3, 99, (), ROWS.serialize().to_pybytes()),), "was not announced"),
        ((PushData(0, 0, 0, 3, FINGERPRINT, (), b"nonsense"),), "cannot be read with its schema"),
        ((PushEvent(0, 0, 77, 0),), "unknown kind 77"),
        ((PushCommit(0, 1),), "the result ends after 1 elements, but 0 were received"),
        ((PushAccept(0, 1, 1),), "may not send a frame of type PushAccept"),
        (
            (PartitionRequest(0, partition_id(), 0, 1, 1, 1),),
            "may not send a frame of type PartitionRequest",
        ),
    ],
)
def test_violations_end_the_connection_and_store_nothing(
    world: World, frames: tuple[Frame, ...], what: str
) -> None:
    with pytest.raises(ProtocolError, match=what):
        world.take(*frames)
    assert world.writer.stored == []


def test_nothing_is_taken_before_there_is_a_place() -> None:
    world = World()
    with pytest.raises(ProtocolError, match="without credit"):
        world.take(data(0))


def test_a_batch_without_credit_is_refused_before_memory_is_taken(world: World) -> None:
    world.post = lambda callback: None  # type: ignore[method-assign]  # the disk is slow
    world.take(data(0), data(1))
    with pytest.raises(ProtocolError, match="without credit"):
        world.take(data(2))


@pytest.mark.parametrize("count", [0, 1 << 16 | 1])
def test_an_impossible_number_of_subpartitions_is_refused(count: int) -> None:
    with pytest.raises(ProtocolError, match="the request is invalid"):
        World().take(PushOpen(0, partition_id(), count))


def test_a_disk_that_fails_is_told_and_what_follows_is_not_stored(world: World) -> None:
    world.writer.error = StorageError("result-1", "No space left on device")
    world.take(data(0))
    said = world.said()
    assert b"No space left on device; see 'shuffle-service.directory'" in said
    assert b"io.tmp.dirs" not in said
    world.take(data(1))
    assert world.writer.stored == [] and world.writer.calls == ["release"]


@pytest.mark.parametrize("error", [MemoryError("no more"), OSError(5, "I/O error"), ValueError()])
def test_whatever_fails_while_a_batch_is_stored_fails_the_push_and_nothing_is_committed(
    world: World, error: Exception
) -> None:
    world.posted = []  # The transport's thread is slow: the frames behind are there before the refusal is.
    world.writer.error = error
    world.take(data(0))
    world.writer.error = None
    world.take(data(1), PushCommit(0, 2))
    assert world.writer.stored == [] and world.writer.calls == []
    for callback in world.posted:
        callback()
    assert f"the result cannot be stored: {type(error).__name__}".encode() in world.said()
    assert world.writer.calls == ["release"] and world.discards == [partition_id()]


def test_whatever_fails_at_the_beginning_or_the_end_is_answered(world: World) -> None:
    world.writer.finish_error = MemoryError("no more")
    world.take(PushCommit(0, 0))
    assert b"the result cannot be completed: MemoryError: no more" in world.said()
    assert world.writer.calls == ["finish", "release"] and world.ended_count == 1
    other = World()
    other.begin_error = MemoryError("no more")
    other.take(OPEN)
    assert b"its writer cannot be created: MemoryError: no more" in other.said()
    assert other.ended_count == 1


def test_nothing_is_committed_of_what_outgrew_the_disk_a_moment_before(world: World) -> None:
    world.posted = []
    world.has_room = False
    world.take(data(0))
    world.take(PushCommit(0, 1))
    assert world.writer.calls == []


def test_who_exceeds_the_share_of_the_disk_is_refused_by_the_name_of_the_option(
    world: World,
) -> None:
    world.has_room = False
    world.take(data(0))
    assert b"shuffle-service.disk.max" in world.said()
    assert world.writer.calls == ["release"]


def test_a_commit_of_what_was_released_is_refused_and_deleted(world: World) -> None:
    world.commit_refusal = "it was released"
    world.take(PushCommit(0, 0))
    assert b"it was released" in world.said()
    assert world.writer.calls == ["finish", "release"]


def test_who_is_refused_at_the_door_is_told_why() -> None:
    world = World()
    world.refusal = "nobody has registered it"
    world.take(OPEN)
    assert world.said() == encoded(Error(0, 7, b"nobody has registered it"))
    assert world.discards == []
