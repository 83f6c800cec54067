"""IngestSender: pushes one partition of a DataFrame from inside a Spark task into a source subtask.

It uses blocking sockets and no thread: without credit it waits, its Spark task stops pulling, and the scan pauses.
"""

from typing import Final, TypeVar

import pyarrow as pa

from headrace.core.ids import JobId, OperatorId
from headrace.core.randomness import SeededRandom, system_random
from headrace.core.security.tls import TlsIdentity
from headrace.core.shuffle_descriptors import TaskManagerLocation
from headrace.network.batches.sealed_batch import (
    SchemaAnnouncer,
    decode_dictionaries,
    has_dictionaries,
)
from headrace.network.errors import (
    ConnectionLostError,
    IngestRefusedError,
    ProtocolError,
)
from headrace.network.ingest.server import INGEST_NAME
from headrace.network.transport.blocking_connection import BlockingConnection
from headrace.network.wire.frames import (
    AddCredit,
    Close,
    Error,
    IngestAccept,
    IngestData,
    IngestEnd,
    IngestOpen,
    Schema,
)
from headrace.network.wire.framing import Frame

_CHANNEL: Final = 0

F = TypeVar("F", bound=Frame)


class IngestSender:
    """Connects at once and pushes rows. NetworkError if the source is gone or refuses, or if the connection ends."""

    def __init__(
        self,
        location: TaskManagerLocation,
        secret: bytes,
        job_id: JobId,
        operator_id: OperatorId,
        subtask_index: int,
        partition: int,
        spark_attempt: int,
        random: SeededRandom | None = None,
        tls: TlsIdentity | None = None,
    ) -> None:
        self._peer = str(location.resource_id)
        self._announcer = SchemaAnnouncer()
        self._credit = 0
        self._connection = BlockingConnection(
            location, INGEST_NAME, secret, random or system_random(), tls
        )
        try:
            self._write(
                IngestOpen(_CHANNEL, job_id, operator_id, subtask_index, partition, spark_attempt)
            )
            accept = self._read_until(IngestAccept)
        except BaseException:
            self._connection.abort()
            self._connection.close()
            raise
        self.accepted_row_count: Final = accept.accepted_row_count
        """Number of rows of the partition that the source has already; continue after them."""
        self._credit += accept.initial_credit

    def send(self, batch: pa.RecordBatch, row_offset: int) -> None:
        """Push rows [row_offset, row_offset + num_rows); waits until the source has room for them."""
        while self._credit < 1:
            self._take(self._connection.receive())
        self._credit -= 1
        plain = decode_dictionaries(batch) if has_dictionaries(batch.schema) else batch
        message = self._announcer.changed(plain.schema)
        if message is not None:
            self._write(Schema(_CHANNEL, self._announcer.fingerprint, message))
        body = plain.serialize()
        self._write(
            IngestData(_CHANNEL, row_offset, plain.num_rows, self._announcer.fingerprint, body)
        )

    def finish(self, row_count: int) -> None:
        """Announce that the partition has `row_count` rows, and wait until the source has taken all of them."""
        self._write(IngestEnd(_CHANNEL, row_count))
        self._read_until(IngestEnd)

    def close(self) -> None:
        """Close the connection; an unfinished partition may be pushed again. Idempotent."""
        self._connection.close()

    def __enter__(self) -> "IngestSender":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _read_until(self, wanted: type[F]) -> F:
        while True:
            frame = self._connection.receive()
            if isinstance(frame, wanted):
                return frame
            self._take(frame)

    def _take(self, frame: Frame) -> None:
        match frame:
            case AddCredit():
                self._credit += frame.credit_count
            case Error():
                text = bytes(frame.body).decode(errors="replace")
                raise IngestRefusedError(self._peer, text)
            case Close():
                raise ConnectionLostError(self._peer, "it was shut down")
            case _:
                raise ProtocolError(
                    self._peer,
                    f"a frame of type {type(frame).__name__} must not be sent to a pusher",
                )

    def _write(self, message: Frame) -> None:
        try:
            self._connection.send(message)
        except ConnectionLostError:
            self._raise_what_was_said()
            raise

    def _raise_what_was_said(self) -> None:
        """Raise the error that the source sent before the connection ended, if any."""
        try:
            while True:
                self._take(self._connection.receive())
        except ConnectionLostError:
            return
