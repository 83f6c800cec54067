"""PushSender: the producer's side of a push, on the thread of its task.

Blocking: without credit the task waits, as it waits for a slow disk.
"""

from typing import Final

from headrace.core.elements import StreamEvent
from headrace.core.ids import ResultPartitionId
from headrace.core.randomness import SeededRandom
from headrace.core.shuffle_descriptors import TaskManagerLocation
from headrace.core.tls import TlsIdentity
from headrace.network.batches import SchemaAnnouncer, SealedBatch, encode_event
from headrace.network.blocking_connection import BlockingConnection
from headrace.network.errors import (
    ConnectionLostError,
    ProtocolError,
    RecordTooLargeError,
)
from headrace.network.framing import Frame
from headrace.network.push_wire import PushAccept, PushCommit, PushData, PushEvent, PushOpen
from headrace.network.wire import (
    NO_CHANNEL,
    AddCredit,
    Close,
    Error,
    KeepAlive,
    Schema,
)
from headrace.shuffle_service.errors import (
    PushNotAdmittedError,
    PushRefusedError,
    PushStalledError,
    ShuffleServiceLostError,
)
from headrace.shuffle_service.push_session import PUSH_NAME

_CHANNEL: Final = 0


class PushSender:
    """Connects at once; the first element waits until it may be pushed. ShuffleServiceLostError, HandshakeError.

    Waiting has an end: `admission_timeout_s` for the first answer, `push_timeout_s` for each sign of progress.
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
        """Push a batch to one subpartition, or all of them; waits for credit. NetworkError."""
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
        """Push an event to all subpartitions. NetworkError."""
        self._await_admission()
        kind, value, body = encode_event(event)
        assert not body, f"{event} in a stored result"
        self._write(PushEvent(_CHANNEL, self._sequence, kind, value))
        self._sequence += 1

    def commit(self) -> None:
        """Wait until all of it is stored and may be read. NetworkError."""
        self._await_admission()
        self._write(PushCommit(_CHANNEL, self._sequence))
        while self._committed_count is None:
            self._await_progress("complete a result")

    def close(self) -> None:
        """Leave; what was not committed is forgotten there. Idempotent."""
        self._connection.close()

    def abort(self) -> None:
        """End it under the thread that waits in it. Any thread."""
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
        """The connection is gone: raise the reason if the service gave one before."""
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
                raise ShuffleServiceLostError(self._peer, "it was shut down")
            case _:
                raise ProtocolError(self._peer, f"a {type(frame).__name__} frame to a producer")
