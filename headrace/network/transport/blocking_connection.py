"""BlockingConnection: frames over a blocking socket, for a thread that has no other work.

Used to push data: by a Spark task with a DataFrame, or a task with a result for a shuffle service. It has no thread;
waiting is back pressure. On the same host it uses a Unix socket, otherwise TCP, with TLS if the cluster uses it.
"""

import contextlib
import socket
from collections import deque
from pathlib import Path
from typing import Final

from headrace.core.randomness import SeededRandom
from headrace.core.security.hmac_handshake import Role
from headrace.core.security.tls import TlsIdentity, client_context
from headrace.core.shuffle_descriptors import TaskManagerLocation
from headrace.network.errors import ConnectionLostError, NetworkError
from headrace.network.transport.server import host_id, is_of_own_user
from headrace.network.wire.frame_decoder import FrameDecoder, refuse_large_bodies
from headrace.network.wire.frames import TEXT_BYTES_MAX, Close, Feature
from headrace.network.wire.framing import Body, Frame, encode
from headrace.network.wire.handshake import Handshake

CONNECT_TIMEOUT_S: Final = 30.0
_LEAVING_TIMEOUT_S: Final = 1.0
"""Seconds for which to try to send Close to a peer that does not read."""


class BlockingConnection:
    """Connects and authenticates as `name` when it is made.

    ConnectionLostError if that fails; HandshakeError if a side refuses. One thread sends and receives; `abort` may be
    called on any.
    """

    def __init__(
        self,
        location: TaskManagerLocation,
        name: str,
        secret: bytes,
        random: SeededRandom,
        tls: TlsIdentity | None = None,
    ) -> None:
        self.peer: Final = str(location.resource_id)
        self._frames: deque[Frame] = deque()
        self._has_checksums = False
        self._socket = _connect(location, tls)
        try:
            self._assembler = self._shake_hands(name, secret, random)
        except BaseException:
            self._socket.close()
            raise

    def send(self, message: Frame, timeout_s: float | None = None) -> None:
        """Write a frame, and wait while the peer does not read.

        ConnectionLostError if the connection ended; TimeoutError after `timeout_s`.
        """
        self._socket.settimeout(timeout_s)
        has_checksum = self._has_checksums and message.HAS_CHECKSUM
        self._send_all(encode(message, with_checksum=has_checksum))
        self._socket.settimeout(None)

    @property
    def has_frames(self) -> bool:
        """Return whether `receive` would return without waiting."""
        return bool(self._frames)

    def receive(self, timeout_s: float | None = None) -> Frame:
        """Return the next frame of the peer, and wait for it.

        NetworkError if the connection failed; TimeoutError after `timeout_s`, then the connection can only be closed.
        """
        if timeout_s is None or self._frames:
            return self._receive()
        self._socket.settimeout(timeout_s)
        frame = self._receive()
        self._socket.settimeout(None)
        return frame

    def _receive(self) -> Frame:
        while not self._frames:
            try:
                count = self._socket.recv_into(self._assembler.buffer())
            except OSError as error:
                if _is_own_timeout(error):
                    raise
                raise ConnectionLostError(self.peer, str(error)) from error
            if not count:
                raise ConnectionLostError(self.peer, "the peer closed the connection")
            self._frames.extend(self._assembler.received(count))
        return self._frames.popleft()

    def close(self) -> None:
        """Send Close and close the connection. Idempotent."""
        with contextlib.suppress(NetworkError, OSError):
            self.send(Close(), _LEAVING_TIMEOUT_S)
        self._socket.close()

    def abort(self) -> None:
        """End the connection while another thread waits in it. Any thread; idempotent."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def _send_all(self, buffers: list[Body]) -> None:
        try:
            for buffer in buffers:
                self._socket.sendall(memoryview(buffer))
        except OSError as error:
            if _is_own_timeout(error):
                raise
            raise ConnectionLostError(self.peer, str(error)) from error

    def _shake_hands(self, name: str, secret: bytes, random: SeededRandom) -> FrameDecoder:
        # The receiver decides whether it wants them.
        handshake = Handshake(
            Role.DIALLER,
            name,
            secret,
            random,
            self.peer,
            features=Feature.CHECKSUM,
            expected_name=self.peer,
        )
        self._socket.settimeout(CONNECT_TIMEOUT_S)
        self._send_all([handshake.opening()])
        while True:
            try:
                data = self._socket.recv(4096)
            except OSError as error:
                # With TLS 1.3 a refused certificate is noticed here.
                raise ConnectionLostError(self.peer, str(error)) from error
            if not data:
                raise ConnectionLostError(
                    self.peer, "the peer closed the connection during the handshake"
                )
            reply, established = handshake.receive(data)
            if reply:
                self._send_all([reply])
            if established is not None:
                break
        self._has_checksums = bool(established.features & Feature.CHECKSUM)
        # From here on waiting is back pressure, which has no time-out.
        self._socket.settimeout(None)
        assembler = FrameDecoder(self.peer, refuse_large_bodies(TEXT_BYTES_MAX, self.peer))
        rest = established.rest
        room = assembler.buffer()
        room[: len(rest)] = rest
        self._frames.extend(assembler.received(len(rest)))
        return assembler


def _is_own_timeout(error: OSError) -> bool:
    """Return whether our own time-out expired; a time-out of the TCP stack has an error number."""
    return isinstance(error, TimeoutError) and error.errno is None


def _connect(location: TaskManagerLocation, tls: TlsIdentity | None) -> socket.socket:
    path = location.unix_socket_path
    if path is not None and location.host_id == host_id() and Path(path).is_socket():
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.connect(path)
            if is_of_own_user(connection):
                return connection
            connection.close()
        except OSError:
            # The same kernel, but another file system: TCP still reaches it.
            connection.close()
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
