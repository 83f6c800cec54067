"""SealedBatch: an immutable Arrow record batch in transit; also writes, cuts and reads batches and events.

The schema is not repeated with each batch: a channel announces it once (SchemaAnnouncer, SchemaMemory), with an 8-byte
fingerprint that every batch names. Dictionary columns are decoded before sealing: a batch never depends on one that was
sent before it. `encode_event` and `decode_event` convert events.
Source: Flink Buffer, NetworkBuffer, EventSerializer.
"""

import hashlib
from collections.abc import Sequence
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa

from headrace.core.barriers import CancelCheckpointMarker, CheckpointBarrier
from headrace.core.elements import (
    EndOfData,
    EndOfOutputChannelState,
    EndOfPartition,
    PlacedMarker,
    StopMode,
    StreamEvent,
)
from headrace.core.errors import DECODE_ERRORS
from headrace.network.errors import CorruptBatchError, ProtocolError
from headrace.network.wire.framing import Body, BodyParts

_ASCII_MAX: Final = 127
_CHECKS_MAX: Final = 1024
SCATTER_BYTES: Final = 32 * 1024
"""Size in bytes from which a batch is sent as several pieces; below it, one copy is cheaper."""
_END_OF_DATA, _END_OF_PARTITION, _BARRIER, _CANCEL_MARKER, _END_OF_OUTPUT_STATE = 1, 2, 3, 4, 5
_BARRIERS: Final = msgspec.msgpack.Decoder(CheckpointBarrier)
NO_FINGERPRINT: Final = 0


class RowCheck:
    """Validates received rows of one schema that have no checksum, before their offsets are used. Any thread.

    Arrow does not check offsets: one wrong bit in them kills the process. Its own full validation checks the offsets,
    and then each text by itself, which is nearly all of its cost. So the offsets are checked with texts cast to bytes,
    and all texts of a column at once: bytes below 128 are UTF-8 however they are cut. A column with other bytes, or a
    nested one, is left to Arrow's full validation. This takes a half to a quarter of the time (4096 texts of 10 and 100
    characters).
    """

    def __init__(self, schema: pa.Schema) -> None:
        self.schema: Final = schema
        types = schema.types
        self._texts: Final = [index for index, each in enumerate(types) if _is_text(each)]
        is_flat = not any(pa.types.is_nested(each) for each in types)
        self._as_bytes: pa.Schema | None = None
        if self._texts and is_flat:
            self._as_bytes = pa.schema([field.with_type(_bytes_of(field.type)) for field in schema])

    def check(self, message: Any, batch: pa.RecordBatch) -> None:
        """Raise pa.ArrowInvalid if `batch`, which was read from `message`, must not be used."""
        if self._as_bytes is None or not self._are_ascii(message, self._as_bytes, batch):
            batch.validate(full=True)

    def _are_ascii(self, message: Any, as_bytes: pa.Schema, batch: pa.RecordBatch) -> bool:
        pa.ipc.read_record_batch(message, as_bytes).validate(full=True)
        for index in self._texts:
            data = batch.column(index).buffers()[2]
            if data is not None and data.size and np.frombuffer(data, np.uint8).max() > _ASCII_MAX:
                return False
        return True


class RowChecks:
    """Caches the RowCheck of each schema by identity: comparing schemas would cost more than the check."""

    def __init__(self) -> None:
        self._checks: dict[int, RowCheck] = {}

    def of(self, schema: pa.Schema) -> RowCheck:
        """Return the check of a schema."""
        found = self._checks.get(id(schema))
        if found is None or found.schema is not schema:
            if len(self._checks) >= _CHECKS_MAX:
                self._checks.clear()
            found = self._checks[id(schema)] = RowCheck(schema)
        return found


def _is_text(data_type: pa.DataType) -> bool:
    return pa.types.is_string(data_type) or pa.types.is_large_string(data_type)


def _bytes_of(data_type: pa.DataType) -> pa.DataType:
    """Return the binary type that has the same layout as a text type; other types as they are."""
    if pa.types.is_string(data_type):
        return pa.binary()
    return pa.large_binary() if pa.types.is_large_string(data_type) else data_type


class _Pieces:
    """File-like sink that keeps the buffers written to it."""

    closed = False

    def __init__(self) -> None:
        self.written: list[Any] = []

    def write(self, piece: Any) -> None:
        self.written.append(piece)

    def flush(self) -> None:
        """Do nothing: no piece is held back."""

    def close(self) -> None:
        """Do nothing."""


class BatchWriter:
    """Writes batches as Arrow messages in pieces that refer to the batches' own memory. Used by one thread.

    `RecordBatch.serialize` copies every column into one new buffer; for a socket, which takes many buffers in one call,
    that copy is the largest cost of sending. Arrow's stream writer hands its sink the buffers themselves.
    """

    def __init__(self) -> None:
        self._pieces = _Pieces()
        self._schema: pa.Schema | None = None
        self._stream: Any = None

    def message(self, batch: pa.RecordBatch, size_bytes: int) -> Body:
        """Return the batch as an Arrow message of `size_bytes`, without its schema."""
        if size_bytes < SCATTER_BYTES:
            return batch.serialize()
        if self._schema is None or not self._schema.equals(batch.schema):
            self._begin(batch)
        self._stream.write_batch(batch)
        pieces, self._pieces.written = self._pieces.written, []
        return BodyParts(tuple(pieces), size_bytes)

    def _begin(self, batch: pa.RecordBatch) -> None:
        self._schema = batch.schema
        self._stream = pa.ipc.new_stream(pa.PythonFile(self._pieces, mode="w"), batch.schema)
        # The stream begins with its schema when the first batch is written; channels announce it themselves.
        self._stream.write_batch(batch.slice(0, 0))
        self._pieces.written = []


_CHECKS: Final = RowChecks()


def fingerprint_of(schema_message: bytes) -> int:
    """Return the 64-bit name of a schema, never 0."""
    return int.from_bytes(hashlib.blake2b(schema_message, digest_size=8).digest(), "big") or 1


class SealedBatch:
    """Finished, immutable rows that may be shared, with the markers between them.

    `arrow` is None if there are only markers. `size_bytes` is the size of the rows as an Arrow message; callers that
    know it pass it, because computing it releases the interpreter lock. The message is made once for all channels of a
    broadcast: by the task's thread if a remote consumer is already known.
    """

    __slots__ = ("_body", "arrow", "markers", "row_count", "size_bytes")

    def __init__(
        self,
        arrow: pa.RecordBatch | None,
        markers: tuple[PlacedMarker, ...],
        size_bytes: int | None = None,
    ) -> None:
        self.arrow = arrow
        self.markers = markers
        self.row_count: int = 0 if arrow is None else arrow.num_rows
        if size_bytes is None:
            size_bytes = 0 if arrow is None else pa.ipc.get_record_batch_size(arrow)
        self.size_bytes: int = size_bytes
        self._body: Any = None

    @classmethod
    def of_message(
        cls, arrow: pa.RecordBatch, markers: tuple[PlacedMarker, ...], message: Body
    ) -> "SealedBatch":
        """Make a batch whose Arrow message exists already, for example because it was read from a file."""
        sealed = cls(arrow, markers, len(message))
        sealed._body = message
        return sealed

    def write(self, writer: BatchWriter) -> None:
        """Serialise the batch for consumers in other processes."""
        if self._body is None and self.arrow is not None:
            self._body = writer.message(self.arrow, self.size_bytes)

    def body(self) -> Body:
        """Return the rows as an Arrow message without schema; empty without rows."""
        if self._body is None:
            self._body = b"" if self.arrow is None else self.arrow.serialize()
        return self._body

    def cut(self, limit_bytes: int, limit_rows: int = 1 << 62) -> "list[SealedBatch]":
        """Return pieces of at most `limit_bytes` and `limit_rows`, cut between rows; a single larger row stays whole.

        A marker goes with the row that it precedes, or with the last piece.
        """
        fits = self.size_bytes <= limit_bytes and self.row_count <= limit_rows
        if fits or self.row_count <= 1:
            return [self]
        assert self.arrow is not None
        # Cut pieces of equal size: filling each piece would leave a small last one, and each piece has a fixed cost.
        count = max(-(-self.size_bytes // limit_bytes), -(-self.row_count // limit_rows))
        step = -(-self.row_count // count)
        pieces: list[SealedBatch] = []
        for start in range(0, self.row_count, step):
            length = min(step, self.row_count - start)
            is_last = start + length == self.row_count
            markers = _shift_markers(self.markers, start, length, is_last)
            # Check again: rows of different sizes make pieces of different sizes.
            pieces += SealedBatch(self.arrow.slice(start, length), markers).cut(limit_bytes)
        return pieces


def has_dictionaries(schema: pa.Schema) -> bool:
    """Return whether any column of the schema is dictionary-encoded."""
    return any(pa.types.is_dictionary(column_type) for column_type in schema.types)


def decode_dictionaries(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return `batch` with its dictionary columns decoded to plain ones."""
    columns = [
        column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
        for column in batch.columns
    ]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def read_batch(
    body: Body, schema: pa.Schema, row_count: int, peer: str, *, is_verified: bool = False
) -> pa.RecordBatch:
    """Rebuild a batch from its message without copying. CorruptBatchError if the message is invalid.

    Offsets and lengths inside the message are checked too (RowCheck), unless `is_verified`: the checksum of the bytes
    was right. Arrow does not check offsets, and a wrong one would kill the process.
    """
    try:
        message = body if isinstance(body, pa.Buffer) else pa.py_buffer(body)
        batch = pa.ipc.read_record_batch(message, schema)
        if batch.num_rows == row_count and not is_verified:
            _CHECKS.of(schema).check(message, batch)
    # Whatever Arrow finds there: also what is not implemented, a missing key, a size beyond all memory.
    except Exception as error:
        raise CorruptBatchError(
            peer, f"the batch cannot be read with its schema: {error}"
        ) from error
    if batch.num_rows != row_count:
        raise CorruptBatchError(
            peer, f"the batch has {batch.num_rows} rows, but was announced with {row_count}"
        )
    return batch


def read_schema(message: bytes, peer: str) -> pa.Schema:
    """Rebuild a schema. CorruptBatchError if the bytes cannot be read as an Arrow schema."""
    try:
        return pa.ipc.read_schema(pa.py_buffer(message))
    except Exception as error:
        raise CorruptBatchError(
            peer, f"the schema cannot be read as an Arrow schema: {error}"
        ) from error


class SchemaAnnouncer:
    """Tracks for the sender of one channel when a schema must be sent before a batch."""

    __slots__ = ("_schema", "fingerprint")

    def __init__(self) -> None:
        self._schema: pa.Schema | None = None
        self.fingerprint = NO_FINGERPRINT

    def changed(self, schema: pa.Schema) -> bytes | None:
        """Return the schema message if `schema` differs from the last announced one, and record it as announced."""
        if self._schema is not None and self._schema.equals(schema):
            return None
        self._schema = schema
        message = schema.serialize().to_pybytes()
        self.fingerprint = fingerprint_of(message)
        return message


class SchemaMemory:
    """Keeps the schema announced last on one channel, for its receiver."""

    __slots__ = ("_fingerprint", "_peer", "_schema")

    def __init__(self, peer: str) -> None:
        self._peer = peer
        self._fingerprint = NO_FINGERPRINT
        self._schema: pa.Schema | None = None

    def announced(self, fingerprint: int, body: Body) -> None:
        """Take a Schema frame.

        CorruptBatchError if its bytes do not match the fingerprint; checked before they are parsed.
        """
        message = bytes(body)
        actual = fingerprint_of(message)
        if actual != fingerprint:
            raise CorruptBatchError(
                self._peer, f"schema {actual:016x} was announced as {fingerprint:016x}"
            )
        self._schema = read_schema(message, self._peer)
        self._fingerprint = fingerprint

    def schema_of(self, fingerprint: int) -> pa.Schema:
        """Return the schema with this fingerprint. CorruptBatchError if it is not the last one announced."""
        if self._schema is None or fingerprint != self._fingerprint:
            raise CorruptBatchError(
                self._peer, f"a batch names schema {fingerprint:016x}, which was not announced"
            )
        return self._schema


def encode_event(event: StreamEvent) -> tuple[int, int, bytes]:
    """Return kind, value and body of an Event frame; only a barrier has a body, its msgpack encoding."""
    match event:
        case EndOfData(mode):
            return _END_OF_DATA, mode.value, b""
        case EndOfPartition():
            return _END_OF_PARTITION, 0, b""
        case CheckpointBarrier(checkpoint_id):
            return _BARRIER, checkpoint_id, msgspec.msgpack.encode(event)
        case CancelCheckpointMarker(checkpoint_id):
            return _CANCEL_MARKER, checkpoint_id, b""
        case EndOfOutputChannelState():
            return _END_OF_OUTPUT_STATE, 0, b""


def decode_event(kind: int, value: int, body: Body, peer: str) -> StreamEvent:
    """Return the event that `encode_event` has encoded. ProtocolError if it is invalid."""
    if kind == _BARRIER:
        return _decode_barrier(value, body, peer)
    if len(body):
        raise ProtocolError(
            peer, f"an event of kind {kind} must not have a body of {len(body)} bytes"
        )
    if kind == _END_OF_DATA and value in (StopMode.DRAIN.value, StopMode.NO_DRAIN.value):
        return EndOfData(StopMode(value))
    if kind == _END_OF_PARTITION:
        return EndOfPartition()
    if kind == _CANCEL_MARKER:
        return CancelCheckpointMarker(value)
    if kind == _END_OF_OUTPUT_STATE:
        return EndOfOutputChannelState()
    raise ProtocolError(peer, f"unknown kind {kind} of event (value {value})")


def _decode_barrier(checkpoint_id: int, body: Body, peer: str) -> CheckpointBarrier:
    try:
        barrier = _BARRIERS.decode(body)
    except DECODE_ERRORS as error:
        raise ProtocolError(peer, f"the checkpoint barrier cannot be read: {error}") from error
    if barrier.checkpoint_id != checkpoint_id:
        what = f"barrier {barrier.checkpoint_id} was announced as {checkpoint_id}"
        raise ProtocolError(peer, what)
    return barrier


def _shift_markers(
    markers: Sequence[PlacedMarker], start: int, length: int, is_last: bool
) -> tuple[PlacedMarker, ...]:
    end = start + length
    return tuple(
        PlacedMarker(placed.row_offset - start, placed.marker)
        for placed in markers
        if start <= placed.row_offset and (placed.row_offset < end or is_last)
    )
