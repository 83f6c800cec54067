"""RemoteResultPartition: a result that is pushed to a shuffle service while its task produces it.

The TaskManager stores nothing: memory holds a batch until it is sent. The connection, a PushSender, is opened
by the task's thread with the first batch, since deploying a task must not wait for the network. Sending blocks: without
credit the task waits, as it waits for a slow disk. Source: Flink Remote Shuffle's RemoteShuffleResultPartition.
"""

import threading
from collections.abc import Callable
from typing import Final

from headrace.core.elements import CancelTaskException, StreamEvent
from headrace.core.ids import ResultPartitionId
from headrace.core.randomness import SeededRandom
from headrace.core.security.tls import TlsIdentity
from headrace.core.shuffle_descriptors import TaskManagerLocation
from headrace.network.batches.sealed_batch import SchemaAnnouncer, SealedBatch, encode_event
from headrace.network.errors import (
    ConnectionLostError,
    PartitionNotFoundError,
    ProtocolError,
    RecordTooLargeError,
)
from headrace.network.memory.local_buffer_pool import LocalBufferPool, SegmentLease
from headrace.network.partitions.result_partition import ResultPartition
from headrace.network.partitions.result_subpartition import ResultSubpartitionView
from headrace.network.transport.blocking_connection import BlockingConnection
from headrace.network.wire.frames import (
    ALL_SUBPARTITIONS,
    NO_CHANNEL,
    AddCredit,
    Close,
    Error,
    KeepAlive,
    PushAccept,
    PushCommit,
    PushData,
    PushEvent,
    PushOpen,
    Schema,
)
from headrace.network.wire.framing import Frame
from headrace.shuffle_service.errors import (
    PushNotAdmittedError,
    PushRefusedError,
    PushStalledError,
    ShuffleServiceLostError,
)
from headrace.shuffle_service.push_session import PUSH_NAME

_CHANNEL: Final = 0


class PushSender:
    """Pushes one result, on the thread of its task. Blocking.

    Connects at once; the first element waits until it may be pushed. ShuffleServiceLostError or HandshakeError if the
    connection fails.

    `admission_timeout_s` limits the wait for the first answer, `push_timeout_s` the wait for each sign of progress.
    """

    def __init__(
        self,
        location: TaskManagerLocation,
        secret: bytes,
        random: SeededRandom,
        tls: TlsIdentity | None,
        partition_id: ResultPartitionId,
        subpartition_count: int,
        admission_timeout_s: float,
        push_timeout_s: float,
    ) -> None:
        self._peer: Final = str(location.resource_id)
        self._admission_timeout_s: Final = admission_timeout_s
        self._push_timeout_s: Final = push_timeout_s
        self._announcer: Final = SchemaAnnouncer()
        self._credit = 0
        self._sequence = 0
        self._batch_bytes_max = 0
        self._committed_count: int | None = None
        try:
            self._connection: Final = BlockingConnection(location, PUSH_NAME, secret, random, tls)
        except ConnectionLostError as error:
            raise ShuffleServiceLostError(self._peer, error.reason) from error
        try:
            self._write(PushOpen(_CHANNEL, partition_id, subpartition_count))
        except BaseException:
            self.close()
            raise

    def send(self, index: int, sealed: SealedBatch) -> None:
        """Push a batch to one subpartition, or to all of them; waits for credit. NetworkError if the push fails."""
        self._await_admission()
        for piece in sealed.cut(self._batch_bytes_max):
            if piece.size_bytes > self._batch_bytes_max:
                raise RecordTooLargeError(piece.size_bytes, self._batch_bytes_max)
            while self._credit < 1:
                self._await_progress("store a batch")
            self._credit -= 1
            fingerprint = 0
            if piece.arrow is not None:
                message = self._announcer.changed(piece.arrow.schema)
                fingerprint = self._announcer.fingerprint
                if message is not None:
                    self._write(Schema(_CHANNEL, fingerprint, message))
            self._write(
                PushData(
                    _CHANNEL,
                    index,
                    self._sequence,
                    piece.row_count,
                    fingerprint,
                    piece.markers,
                    piece.body(),
                )
            )
            self._sequence += 1

    def send_event(self, event: StreamEvent) -> None:
        """Push an event to all subpartitions. NetworkError if the push fails."""
        self._await_admission()
        kind, value, body = encode_event(event)
        assert not body, f"a stored result cannot contain {event}"
        self._write(PushEvent(_CHANNEL, self._sequence, kind, value))
        self._sequence += 1

    def commit(self) -> None:
        """Wait until the service has stored the whole result, and consumers may read it. NetworkError if that fails."""
        self._await_admission()
        self._write(PushCommit(_CHANNEL, self._sequence))
        while self._committed_count is None:
            self._await_progress("complete a result")

    def close(self) -> None:
        """Disconnect; the service deletes data that was not committed. Idempotent."""
        self._connection.close()

    def abort(self) -> None:
        """End the connection while the task's thread may be waiting for it. Any thread."""
        self._connection.abort()

    def _await_admission(self) -> None:
        while not self._batch_bytes_max:
            try:
                self._take(self._read(self._admission_timeout_s))
            except TimeoutError as error:
                raise PushNotAdmittedError(self._peer, self._admission_timeout_s) from error

    def _await_progress(self, what: str) -> None:
        try:
            self._take(self._read(self._push_timeout_s))
        except TimeoutError as error:
            raise PushStalledError(self._peer, self._push_timeout_s, what) from error

    def _write(self, message: Frame) -> None:
        try:
            self._connection.send(message, self._push_timeout_s)
        except TimeoutError as error:
            raise PushStalledError(self._peer, self._push_timeout_s, "read a batch") from error
        except ConnectionLostError as error:
            self._raise_what_was_said()
            raise ShuffleServiceLostError(self._peer, error.reason) from error

    def _read(self, timeout_s: float) -> Frame:
        try:
            return self._connection.receive(timeout_s)
        except ConnectionLostError as error:
            raise ShuffleServiceLostError(self._peer, error.reason) from error

    def _raise_what_was_said(self) -> None:
        """Raise the reason for the lost connection if the service gave one before."""
        try:
            while True:
                self._take(self._connection.receive())
        except ConnectionLostError:
            return

    def _take(self, frame: Frame) -> None:
        match frame:
            case PushAccept():
                self._credit += frame.initial_credit
                self._batch_bytes_max = frame.batch_bytes_max
            case AddCredit():
                self._credit += frame.credit_count
            case PushCommit():
                self._committed_count = frame.element_count
            case Error():
                text = bytes(frame.body).decode(errors="replace")
                if frame.channel == NO_CHANNEL:
                    raise ProtocolError(self._peer, text)
                raise PushRefusedError(self._peer, text)
            case KeepAlive():
                pass
            case Close():
                raise ShuffleServiceLostError(self._peer, "the service was shut down")
            case _:
                raise ProtocolError(
                    self._peer,
                    f"the service may not send a frame of type {type(frame).__name__} to a producer",
                )


class RemoteResultPartition(ResultPartition):
    """Result partition that is pushed to a shuffle service. `connect` opens the push and may block."""

    def __init__(
        self,
        partition_id: ResultPartitionId,
        subpartition_count: int,
        pool: LocalBufferPool,
        connect: Callable[[], PushSender],
        on_over: "Callable[[RemoteResultPartition], None]",
    ) -> None:
        super().__init__(partition_id, subpartition_count, pool)
        self._connect = connect
        self._on_over = on_over
        # Guards the fields below: the task pushes, its canceller and the environment end it.
        self._lock = threading.Lock()
        self._sender: PushSender | None = None
        self._pusher: int | None = None
        self._is_over = False

    def emit(self, index: int, sealed: SealedBatch, lease: SegmentLease) -> None:
        """Push a batch for one subpartition. NetworkError if the push fails."""
        try:
            self._push().send(index, sealed)
        finally:
            lease.release()

    def broadcast(self, sealed: SealedBatch, lease: SegmentLease) -> None:
        """Push a batch for all subpartitions; it is sent and stored once. NetworkError if the push fails."""
        try:
            self._push().send(ALL_SUBPARTITIONS, sealed)
        finally:
            lease.release(self.subpartition_count)

    def emit_event(self, event: StreamEvent, *, blocks_upstream: bool = False) -> None:
        """Push an event; blocking is ignored, as stored results are read later. NetworkError."""
        self._push().send_event(event)

    def finish(self) -> None:
        """Commit the result; return when the service has stored all of it. NetworkError if that fails."""
        if not self.is_finished:
            self._push().commit()
            self.is_finished = True

    def fail(self, cause: BaseException | None) -> None:
        """End the push: the service drops the pushed data, and tells the consumers."""
        self._end()

    def close(self) -> None:
        """End the push; a finished result stays with the service."""
        self._end()

    def release(self) -> None:
        """End the push; the shuffle master tells the service to delete the stored data."""
        self._end()

    def create_view(
        self, index: int, listener: Callable[[], None], segment_size: int, first_element: int = 0
    ) -> ResultSubpartitionView:
        """Raise PartitionNotFoundError: consumers read from the service."""
        raise PartitionNotFoundError(str(self.partition_id), "the producer's")

    def _push(self) -> PushSender:
        """Return the connection; CancelTaskException if the partition is closed."""
        if self._sender is None and not self._is_over:
            sender = self._connect()
            with self._lock:
                self._sender, self._pusher = sender, threading.get_ident()
                is_over = self._is_over
            if is_over:
                sender.close()
        if self._is_over:
            raise CancelTaskException("the task's output was closed")
        assert self._sender is not None
        return self._sender

    def _end(self) -> None:
        with self._lock:
            is_first, self._is_over = not self._is_over, True
            sender = self._sender
        if sender is not None and threading.get_ident() == self._pusher:
            sender.close()
        elif sender is not None and not self.is_finished:
            # Under the task, which may wait for credit, and lets go of the socket when it ends.
            sender.abort()
        if is_first:
            self.pool.destroy()
            self._on_over(self)
