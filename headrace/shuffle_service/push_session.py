"""PushSession: the connection of a producer that pushes one result to a shuffle service, up to its commit.

    PushOpen ► PushAccept ► PushData, PushEvent … ► PushCommit ► stored, PushCommit repeated

A push that ends before the commit leaves no files. Frames are received on the transport's thread; files are written on
the I/O pool, one job of a session at a time and in order. Credit is returned when a batch is stored, so that a service
with a slow disk slows its producers down. Source: Flink Remote Shuffle's write side; Celeborn PushData.
"""

import logging
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from headrace.core.ids import ResultPartitionId
from headrace.network.batches.sealed_batch import (
    SchemaMemory,
    SealedBatch,
    decode_event,
    read_batch,
)
from headrace.network.errors import (
    ConnectionLostError,
    NetworkError,
    ProtocolError,
    StorageError,
)
from headrace.network.sessions.transport import Link
from headrace.network.stored.io_pool import IoExecutor, SerialJobs
from headrace.network.stored.sort_merge_partition import SortMergePartition
from headrace.network.wire.frames import (
    ALL_SUBPARTITIONS,
    TEXT_BYTES_MAX,
    AddCredit,
    Close,
    Error,
    ErrorCode,
    KeepAlive,
    PushAccept,
    PushCommit,
    PushData,
    PushEvent,
    PushOpen,
    Schema,
)
from headrace.network.wire.framing import Body, Frame, encode
from headrace.shuffle_service.options import DIRECTORY
from headrace.shuffle_service.partition_store import PartitionStore

if TYPE_CHECKING:
    from headrace.shuffle_service.service import ShuffleService

_LOG = logging.getLogger(__name__)

PUSH_NAME: Final = "push"
"""Name with which a producer introduces itself to a shuffle service; no resource id may be equal to it."""
SUBPARTITION_COUNT_MAX: Final = 1 << 16


class PushNotAllowedError(Exception):
    """A producer may not push its result; the text gives the reason, which its session sends to the producer."""


@dataclass(frozen=True)
class WriteGrant:
    """Resources granted to one producer: memory pages that collect its result, and credit for batches in flight."""

    pages: int
    credit_count: int


class PushSession:
    """Session of one producer that pushes its result. Transport thread only, unless noted."""

    # A producer is one blocking thread: while its task computes it can say nothing.
    is_kept_alive = False
    has_output_left = False
    is_spent = False

    def __init__(
        self,
        link: Link,
        service: "ShuffleService",
        store: PartitionStore,
        io: IoExecutor,
        on_lost: Callable[[], None],
        *,
        has_checksums: bool = False,
    ) -> None:
        self._link: Final = link
        self._has_checksums: Final = has_checksums
        self._on_lost: Final = on_lost
        self._service: Final = service
        self._store: Final = store
        self._jobs: Final = SerialJobs(io)
        self._schema: Final = SchemaMemory(link.peer)
        self._output: list[Body] = []
        self._request: PushOpen | None = None
        self._credit = 0
        self._next_sequence = 0
        self._is_accepted = False
        self._is_committing = False
        self._is_over = False
        # The I/O pool's own, of which one job runs at a time.
        self._writer: SortMergePartition | None = None
        self._is_committed = False
        self._is_failed = False

    @property
    def partition_id(self) -> ResultPartitionId | None:
        """Return the id of the partition that is pushed; None before the producer has named it."""
        return None if self._request is None else self._request.partition_id

    def check_body(self, cls: type[Frame], frame: Frame, body_length: int) -> None:
        """Refuse large frame bodies for which no credit was granted."""
        is_data = isinstance(frame, PushData)
        if is_data and self._credit < 1:
            raise ProtocolError(self._link.peer, "a batch was pushed without credit")
        most = self._service.batch_bytes_max if is_data else TEXT_BYTES_MAX
        if body_length > most:
            what = f"a frame of type {cls.__name__} has a body of {body_length} bytes, the maximum is {most}"
            raise ProtocolError(self._link.peer, what)

    def frame_received(self, frame: Frame) -> None:
        if self._is_over:
            return
        match frame:
            case PushOpen() if self._request is None:
                self._open(frame)
            case Schema() if self._is_pushing:
                self._schema.announced(frame.fingerprint, frame.body)
            case PushData() if self._is_pushing:
                self._take_batch(frame)
            case PushEvent() if self._is_pushing:
                self._take_event(frame)
            case PushCommit() if self._is_pushing:
                self._take_commit(frame)
            case KeepAlive():
                pass
            case Close():
                raise ConnectionLostError(self._link.peer, "the producer left")
            case _:
                what = f"a producer may not send a frame of type {type(frame).__name__}"
                raise ProtocolError(self._link.peer, what)

    def refuse(self, reason: str) -> None:
        """Tell the producer to stop, and delete the data that it pushed."""
        if not self._is_over:
            text = reason.encode()[:TEXT_BYTES_MAX]
            self._send(Error(0, ErrorCode.PUSH_REFUSED, text))
            self._end()

    def take_output(self, budget_bytes: int) -> list[Body]:
        output, self._output = self._output, []
        return output

    def lost(self, error: NetworkError) -> None:
        self._on_lost()
        self._end()

    @property
    def _is_pushing(self) -> bool:
        return self._is_accepted and not self._is_committing

    def _open(self, frame: PushOpen) -> None:
        if not 0 < frame.subpartition_count <= SUBPARTITION_COUNT_MAX:
            raise ProtocolError(self._link.peer, f"the request is invalid: {frame}")
        self._request = frame
        try:
            grant = self._service.open_push(self, frame.partition_id)
        except PushNotAllowedError as error:
            self.refuse(str(error))
        else:
            self._jobs.submit(lambda: self._begin(grant))

    def _accept(self, grant: WriteGrant) -> None:
        if not self._is_over:
            self._is_accepted = True
            self._credit = grant.credit_count
            self._send(PushAccept(0, self._credit, self._service.batch_bytes_max))

    def _take_batch(self, frame: PushData) -> None:
        self._check_sequence(frame.sequence)
        assert self._request is not None
        count, index = self._request.subpartition_count, frame.subpartition_index
        if index >= count and index != ALL_SUBPARTITIONS:
            raise ProtocolError(
                self._link.peer, f"a batch for subpartition {index}, but there are only {count}"
            )
        if self._credit < 1:
            raise ProtocolError(self._link.peer, "a batch was pushed without credit")
        self._credit -= 1
        arrow = None
        if frame.row_count:
            schema = self._schema.schema_of(frame.fingerprint)
            peer, is_verified = self._link.peer, self._has_checksums
            arrow = read_batch(frame.body, schema, frame.row_count, peer, is_verified=is_verified)
        sealed = SealedBatch(arrow, frame.markers)
        self._jobs.submit(lambda: self._write(lambda writer: _store(writer, index, sealed), True))

    def _take_event(self, frame: PushEvent) -> None:
        self._check_sequence(frame.sequence)
        event = decode_event(frame.kind, frame.value, b"", self._link.peer)
        self._jobs.submit(lambda: self._write(lambda writer: writer.emit_event(event), False))

    def _take_commit(self, frame: PushCommit) -> None:
        if frame.element_count != self._next_sequence:
            what = f"the result ends after {frame.element_count} elements, but {self._next_sequence} were received"
            raise ProtocolError(self._link.peer, what)
        self._is_committing = True
        self._jobs.submit(self._commit)

    def _check_sequence(self, sequence: int) -> None:
        if sequence != self._next_sequence:
            what = f"element {sequence} was received, but {self._next_sequence} was expected"
            raise ProtocolError(self._link.peer, what)
        self._next_sequence += 1

    def _granted(self) -> None:
        if not self._is_over:
            self._credit += 1
            self._send(AddCredit(0, 1))

    def _committed(self) -> None:
        if not self._is_over:
            self._send(PushCommit(0, self._next_sequence))
            self._end()

    def _end(self) -> None:
        if self._is_over:
            return
        self._is_over = True
        self._jobs.submit(self._discard)

    def _send(self, message: Frame) -> None:
        self._output += encode(message)
        self._link.wake()

    def _begin(self, grant: WriteGrant) -> None:
        request = self._request
        assert request is not None
        if self._is_over:
            return
        with self._failing("its writer cannot be created"):
            count = request.subpartition_count
            self._writer = self._store.create_writer(request.partition_id, count, grant.pages)
            self._service.post(lambda: self._accept(grant))

    def _write(self, write: Callable[[SortMergePartition], None], costs_credit: bool) -> None:
        writer = self._writer
        if writer is None or self._is_failed or self._is_over:
            return
        assert self._request is not None
        with self._failing("the result cannot be stored"):
            write(writer)
            if not self._store.grown(self._request.partition_id, writer.written_bytes):
                self._fail("the service's disk quota is used up: raise shuffle-service.disk.max")
            elif costs_credit:
                self._service.post(self._granted)

    def _commit(self) -> None:
        writer = self._writer
        if writer is None or self._is_failed or self._is_over:
            return
        assert self._request is not None
        partition_id = self._request.partition_id
        with self._failing("the result cannot be completed"):
            writer.finish()
            file = writer.file
            if file is None:
                self._fail("it was released")
                return
            self._store.grown(partition_id, file.data.size)
            reason = self._service.commit(partition_id, file)
            if reason is not None:
                self._fail(reason)
                return
            self._is_committed = True
            self._service.post(self._committed)

    def _discard(self) -> None:
        """Return the memory, and delete data that was not committed."""
        writer, self._writer = self._writer, None
        try:
            if writer is not None and self._is_committed:
                writer.close()
            elif writer is not None:
                writer.release()
        finally:
            # Whatever went wrong above: consumers must not wait for this attempt, nor its memory be lost.
            if writer is not None and not self._is_committed:
                assert self._request is not None
                self._service.discarded(self._request.partition_id)
            self._service.post(lambda: self._service.end_push(self))

    @contextmanager
    def _failing(self, what: str) -> Generator[None]:
        """Context for steps on the I/O pool: any exception fails the push and is answered, as a row may be missing."""
        try:
            yield
        except StorageError as error:
            # Its own text names a TaskManager's directories.
            self._fail(f"{error.place}: {error.reason}; see '{DIRECTORY.key}' of the service")
        except NetworkError as error:
            self._fail(str(error))
        except Exception as error:
            # A mistake of ours, or no memory.
            _LOG.exception("a pushed result failed: %s", what)
            self._fail(f"{what}: {type(error).__name__}: {error}")

    def _fail(self, reason: str) -> None:
        """Fail the push: no later data is stored, even before the session refuses it. Called on the I/O pool."""
        self._is_failed = True
        self._service.post(lambda: self.refuse(reason))


def _store(writer: SortMergePartition, index: int, sealed: SealedBatch) -> None:
    references = writer.subpartition_count if index == ALL_SUBPARTITIONS else 1
    # In memory a batch may be a little larger than on its way: then it has all that there is.
    size_bytes = min(sealed.size_bytes, writer.pool.maximum * writer.pool.segment_size)
    lease = writer.pool.try_lease(size_bytes, references)
    if lease is None:
        # Nobody else has of this memory: after this all of it is free.
        writer.make_room()
        lease = writer.pool.try_lease(size_bytes, references)
        assert lease is not None, "one batch always fits the memory granted to a result"
    if index == ALL_SUBPARTITIONS:
        writer.broadcast(sealed, lease)
    else:
        writer.emit(index, sealed, lease)
