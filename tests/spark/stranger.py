"""A stranger at Spark's ports: speaks Spark's network protocol and knows no secret.

Each message is its length with the length's own eight bytes, the number of its type, and a body.
Source: Spark, network-common's MessageDecoder and network-shuffle's BlockTransferMessage.
"""

import contextlib
import socket
import struct
from dataclasses import dataclass

_LENGTH = struct.Struct("!q")
_CHUNK_REQUEST, _CHUNK, _RPC, _RPC_ANSWER, _STREAM_REQUEST, _STREAM = 0, 1, 3, 4, 6, 7
_OPEN_BLOCKS, _STREAM_HANDLE = 0, 3
_ANSWER_MAX = 1 << 26
_TIMEOUT_S = 2.0


@dataclass
class Stranger:
    """Asks one port, with a new connection each time: a server that refuses hangs up."""

    port: int

    def block(self, name: str) -> bytes | None:
        """The bytes of a block, or None where there is none for a stranger."""
        # It hangs up, or says nothing.
        with contextlib.suppress(ConnectionError, TimeoutError, EOFError):
            return self._block(name)
        return None

    def file(self, name: str) -> bytes | None:
        """The bytes of a file that the driver serves to executors, or None."""
        with contextlib.suppress(ConnectionError, TimeoutError, EOFError):
            return self._file(name)
        return None

    def _block(self, name: str) -> bytes | None:
        asked = (
            bytes([_OPEN_BLOCKS]) + _text("app") + _text("1") + struct.pack("!i", 1) + _text(name)
        )
        with self._connection() as connection:
            request = struct.pack("!qi", 1, len(asked)) + asked
            kind, answer = _exchange(connection, _RPC, request)
            handle = answer[12:]
            if kind != _RPC_ANSWER or handle[:1] != bytes([_STREAM_HANDLE]):
                return None
            chunk = handle[1:9] + struct.pack("!i", 0)
            kind, answer = _exchange(connection, _CHUNK_REQUEST, chunk)
            return answer[12:] if kind == _CHUNK else None

    def _file(self, name: str) -> bytes | None:
        with self._connection() as connection:
            kind, answer = _exchange(connection, _STREAM_REQUEST, _text(f"/files/{name}"))
            if kind != _STREAM:
                return None
            (name_length,) = struct.unpack_from("!i", answer)
            (length,) = struct.unpack_from("!q", answer, 4 + name_length)
            return _read(connection, length)

    def _connection(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), _TIMEOUT_S)


def _text(text: str) -> bytes:
    return struct.pack("!i", len(text)) + text.encode()


def _exchange(connection: socket.socket, kind: int, body: bytes) -> tuple[int, bytes]:
    connection.sendall(_LENGTH.pack(9 + len(body)) + bytes([kind]) + body)
    (length,) = _LENGTH.unpack(_read(connection, _LENGTH.size))
    answer = _read(connection, length - _LENGTH.size)
    return answer[0], answer[1:]


def _read(connection: socket.socket, size: int) -> bytes:
    if not 0 <= size <= _ANSWER_MAX:
        # Whatever listens there, it does not speak this protocol.
        raise EOFError
    parts = bytearray()
    while len(parts) < size:
        part = connection.recv(min(1 << 16, size - len(parts)))
        if not part:
            raise EOFError
        parts += part
    return bytes(parts)
