"""IngestSender: pushes one partition of a DataFrame from inside a Spark task into a source subtask.

Blocking sockets and no thread: without credit it waits, its Spark task stops pulling, and the scan pauses.
"""

import contextlib
import socket
from collections import deque
from pathlib import Path
from typing import Final, TypeVar

import pyarrow as pa

from headrace.core.ids import JobId, OperatorId
from headrace.core.mutual_proof import Role
from headrace.core.randomness import SeededRandom, system_random
from headrace.core.shuffle_descriptors import TaskManagerLocation
from headrace.core.tls import TlsIdentity, client_context
from headrace.network.assembler import FrameAssembler, refuse_large_bodies
from headrace.network.batches import SchemaAnnouncer, decode_dictionaries, has_dictionaries
from headrace.network.errors import (
    ConnectionLostError,
    IngestRefusedError,
    NetworkError,
    ProtocolError,
)
from headrace.network.handshake import Handshake
from headrace.network.ingest import INGEST_NAME
from headrace.network.server import host_id
from headrace.network.wire import (
    TEXT_BYTES_MAX,
    AddCredit,
    Body,
    Close,
    Error,
    Frame,
    IngestAccept,
    IngestData,
    IngestEnd,
    IngestOpen,
    Schema,
    encode,
)

CONNECT_TIMEOUT_S: Final = 30.0
_CHANNEL: Final = 0

F = TypeVar("F", bound=Frame)


class IngestSender:
    """Connects at once. NetworkError where the source is gone, refuses, or the connection ends."""

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
        self._frames: deque[Frame] = deque()
        self._credit = 0
        self._socket = _connect(location, tls)
        try:
            self._assembler = self._shake_hands(secret, random or system_random())
            self._write(
                IngestOpen(_CHANNEL, job_id, operator_id, subtask_index, partition, spark_attempt)
            )
            accept = self._read_until(IngestAccept)
        except BaseException:
            self._socket.close()
            raise
        self.accepted_row_count: Final = accept.accepted_row_count
        """Rows of the partition that the source has already: go on behind them."""
        self._credit += accept.initial_credit

    def send(self, batch: pa.RecordBatch, row_offset: int) -> None:
        """Push rows [row_offset, row_offset + num_rows); waits until the source has room for them."""
        while self._credit < 1:
            self._take(self._next_frame())
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
        """Say that the partition has `row_count` rows, and wait until the source has taken all of them."""
        self._write(IngestEnd(_CHANNEL, row_count))
        self._read_until(IngestEnd)

    def close(self) -> None:
        """Leave; what was not finished may be pushed again. Idempotent."""
        with contextlib.suppress(NetworkError):
            self._write(Close())
        self._socket.close()

    def __enter__(self) -> "IngestSender":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _shake_hands(self, secret: bytes, random: SeededRandom) -> FrameAssembler:
        handshake = Handshake(Role.DIALLER, INGEST_NAME, secret, random, self._peer)
        self._socket.settimeout(CONNECT_TIMEOUT_S)
        self._send_all([handshake.opening()])
        while True:
            try:
                data = self._socket.recv(4096)
            except OSError as error:
                # With TLS 1.3 it is here that a certificate is refused.
                raise ConnectionLostError(self._peer, str(error)) from error
            if not data:
                raise ConnectionLostError(
                    self._peer, "it closed the connection during the handshake"
                )
            reply, established = handshake.receive(data)
            if reply:
                self._send_all([reply])
            if established is not None:
                break
        # From here on waiting is back pressure, which has no end of its own.
        self._socket.settimeout(None)
        assembler = FrameAssembler(self._peer, refuse_large_bodies(TEXT_BYTES_MAX, self._peer))
        rest = established.rest
        room = assembler.buffer()
        room[: len(rest)] = rest
        self._frames.extend(assembler.received(len(rest)))
        return assembler

    def _read_until(self, wanted: type[F]) -> F:
        while True:
            frame = self._next_frame()
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
                raise ProtocolError(self._peer, f"a {type(frame).__name__} frame sent to a pusher")

    def _next_frame(self) -> Frame:
        while not self._frames:
            try:
                count = self._socket.recv_into(self._assembler.buffer())
            except OSError as error:
                raise ConnectionLostError(self._peer, str(error)) from error
            if not count:
                raise ConnectionLostError(self._peer, "it closed the connection")
            self._frames.extend(self._assembler.received(count))
        return self._frames.popleft()

    def _write(self, message: Frame) -> None:
        self._send_all(encode(message))

    def _send_all(self, buffers: list[Body]) -> None:
        try:
            for buffer in buffers:
                self._socket.sendall(memoryview(buffer))
        except OSError as error:
            self._raise_what_was_said()
            raise ConnectionLostError(self._peer, str(error)) from error

    def _raise_what_was_said(self) -> None:
        """The connection is gone: raise the reason if the source gave one before."""
        try:
            while True:
                self._take(self._next_frame())
        except ConnectionLostError:
            return


def _connect(location: TaskManagerLocation, tls: TlsIdentity | None) -> socket.socket:
    path = location.unix_socket_path
    if path is not None and location.host_id == host_id() and Path(path).is_socket():
        try:
            connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            connection.connect(path)
            return connection
        except OSError:
            # The same kernel, but a file system of its own: TCP reaches it all the same.
            pass
    try:
        connection = socket.create_connection(
            (location.host, location.data_port), timeout=CONNECT_TIMEOUT_S
        )
    except OSError as error:
        raise ConnectionLostError(str(location.resource_id), str(error)) from error
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if tls is None:
        return connection
    try:
        return client_context(tls).wrap_socket(connection)
    except OSError as error:
        connection.close()
        raise ConnectionLostError(str(location.resource_id), f"TLS: {error}") from error
