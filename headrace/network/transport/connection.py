"""SocketConnection: an asyncio protocol that reads into a ConnectionProtocol's buffers and writes its frames."""

import asyncio
import logging
import socket
from collections.abc import Callable
from typing import Final, cast

from headrace.core.security.hmac_handshake import Role
from headrace.network.errors import ConnectionLostError, NetworkError
from headrace.network.sessions.connection_protocol import ConnectionProtocol
from headrace.network.sessions.peer_session import Session
from headrace.network.sessions.transport import TransportHost
from headrace.network.transport.server import is_of_own_user
from headrace.network.wire.framing import Body

_LOG: Final = logging.getLogger(__name__)
TOP_UP_BYTES: Final = 512 * 1024
"""Number of unsent bytes from which nothing more is taken from the session, so that control frames wait for less.

One turn of a channel may exceed it (see producer_session.QUANTUM_BYTES).
"""
ROUNDS_PER_FLUSH: Final = 4
UNIX_SEND_BUFFER_BYTES: Final = 1 << 20
LINGER_S: Final = 1.0
"""Seconds for which to read on from a peer after the last output was sent, unless it closes before."""
LINGER_BYTES: Final = 32 << 20
"""Most bytes of such a peer that are dropped: far more than can be in flight, less than it could send."""
LINGER_PAUSE_MS: Final = 25.0
"""Pause in ms after each `_LINGER_STEP_BYTES` of such a peer.

Other connections get a turn meanwhile, and a peer gains nothing by reconnecting at once.
"""
_LINGER_STEP_BYTES: Final = 1 << 20
_DROPPED_BYTES: Final = 64 * 1024


def enlarge_buffers(connection: socket.socket) -> None:
    """Enlarge the buffer of a Unix socket to a few batches, for fewer and larger reads.

    TCP sizes its buffers itself.
    """
    if connection.family == socket.AF_UNIX:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, UNIX_SEND_BUFFER_BYTES)


class SocketConnection(asyncio.BufferedProtocol):
    """One connection. Everything runs on the network thread except `wake`.

    `on_ended` is called when the connection can no longer be used, `on_closed` when its socket is closed. An unexpected
    error in its callbacks ends the connection and so fails its channels; the loop ends it after an error of
    `buffer_updated`.
    """

    def __init__(
        self,
        host: TransportHost,
        role: Role,
        post: Callable[[Callable[[], None]], None],
        handshake_timeout_s: float,
        on_opened: Callable[["SocketConnection"], None],
        on_claimed: Callable[["SocketConnection", str], None],
        on_established: Callable[["SocketConnection", str, Session], None],
        on_ended: Callable[["SocketConnection", NetworkError], None],
        on_closed: Callable[["SocketConnection"], None],
        peer: str,
        expected_name: str | None = None,
    ) -> None:
        self.expected_name = expected_name
        self.role: Final = role
        self._peer = peer
        self._post = post
        self._handshake_timeout_s = handshake_timeout_s
        self._on_opened = on_opened
        self._on_established = on_established
        self._on_ended = on_ended
        self._on_closed = on_closed
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._resumption: asyncio.TimerHandle | None = None
        self._is_paused = False
        self._is_wake_pending = False
        self._error: NetworkError | None = None
        # After the end, further bytes are read into this buffer and dropped.
        self._drop: bytearray | None = None
        self.host = "this host"
        """Address of the peer, unless it came over a Unix socket."""
        self.refusal = ""
        """Reason for which the peer was refused before it had authenticated itself; empty if it was not."""
        self._dropped_bytes = 0
        self._endpoint = ConnectionProtocol(
            host,
            self,
            role,
            self._established,
            expected_name,
            lambda name: on_claimed(self, name),
        )

    @property
    def peer(self) -> str:
        return self._peer

    @property
    def session(self) -> Session | None:
        """Session on this connection, or None until the peer is authenticated."""
        return self._endpoint.session

    def wake(self) -> None:
        if not self._is_wake_pending:
            self._is_wake_pending = True
            self._post(lambda: self._guard(self._flush))

    def close(self) -> None:
        """Close on purpose: write pending output and a Close frame first."""
        error = self._error or ConnectionLostError(self._peer, "closed by this side")
        self._end(error, self._endpoint.farewell())

    def refuse(self, reason: str) -> None:
        """Drop a peer that has not authenticated itself."""
        self.refusal = reason
        self._error = ConnectionLostError(self._peer, reason)
        self.abort()

    def abort(self) -> None:
        """Drop the connection without sending anything more."""
        if self._transport is not None:
            self._transport.abort()

    def abandon(self) -> None:
        """Drop a connection whose dial was given up, made or not; the dialler informs those that wait for it."""
        self.expected_name = None
        self._error = ConnectionLostError(self._peer, "the connection was not made in time")
        self.abort()
        self.connection_lost(None)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = made = cast(asyncio.Transport, transport)
        self._guard(lambda: self._made(made))

    def _made(self, transport: asyncio.Transport) -> None:
        if self._drop is not None:
            # The connection was abandoned before.
            self.abort()
            return
        peer_name = transport.get_extra_info("peername")
        if isinstance(peer_name, tuple):
            self.host = str(cast(tuple[object, ...], peer_name)[0])
        self._on_opened(self)
        # Writing pauses at this number of bytes, so that a flush always has some budget.
        transport.set_write_buffer_limits(high=TOP_UP_BYTES - 1)
        connection = transport.get_extra_info("socket")
        if not is_of_own_user(connection):
            self.refuse("a process of another user is at the other end")
            return
        enlarge_buffers(connection)
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._handshake_timeout_s, self._handshake_timed_out)
        self._flush()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._endpoint.buffer() if self._drop is None else memoryview(self._drop)

    def buffer_updated(self, nbytes: int) -> None:
        if self._drop is not None:
            self._dropped(nbytes)
            return
        # Output caused by the received frames needs no wake-up: it is flushed below.
        self._is_wake_pending = True
        try:
            self._endpoint.received(nbytes)
        except NetworkError as error:
            if not self._endpoint.is_established:
                self.refusal = str(error)
            self._end(error, self._endpoint.last_output())
            return
        if self._endpoint.read_pause_ms:
            self._pause_reading(self._endpoint.read_pause_ms)
        self._flush()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        error = self._error
        if error is None:
            reason = (
                "the connection was closed unexpectedly"
                if exc is None
                else f"{type(exc).__name__}: {exc}"
            )
            error = ConnectionLostError(self._peer, reason)
        self._lose(error)
        self._stop_timer()
        self._on_closed(self)

    def pause_writing(self) -> None:
        self._is_paused = True

    def resume_writing(self) -> None:
        self._is_paused = False
        self._guard(self._flush)

    def _dropped(self, byte_count: int) -> None:
        steps_before = self._dropped_bytes // _LINGER_STEP_BYTES
        self._dropped_bytes += byte_count
        if self._dropped_bytes > LINGER_BYTES:
            self.abort()
        elif self._dropped_bytes // _LINGER_STEP_BYTES > steps_before:
            self._pause_reading(LINGER_PAUSE_MS)

    def _pause_reading(self, duration_ms: float) -> None:
        """Let other connections get a turn; bytes that the peer sends meanwhile wait in its socket."""
        assert self._transport is not None
        if self._resumption is not None:
            self._resumption.cancel()
        self._transport.pause_reading()
        loop = asyncio.get_running_loop()
        self._resumption = loop.call_later(duration_ms / 1000, self._guard, self._resume_reading)

    def _resume_reading(self) -> None:
        self._resumption = None
        if self._transport is not None:
            self._transport.resume_reading()

    def _guard(self, callback: Callable[[], None]) -> None:
        """Run a callback of this connection; an error ends the connection, as otherwise only the log would show it."""
        try:
            callback()
        except Exception as error:
            _LOG.exception("the connection with %s ends because of an unexpected error", self._peer)
            reason = f"{type(error).__name__}: {error}"
            self._error = self._error or ConnectionLostError(self._peer, reason)
            self.abort()
            self.connection_lost(None)

    def _flush(self) -> None:
        self._is_wake_pending = False
        for _ in range(ROUNDS_PER_FLUSH):
            transport = self._transport
            if self._is_paused or transport is None:
                return
            if transport.is_closing() or self._drop is not None:
                return
            output = self._endpoint.take_output(TOP_UP_BYTES - transport.get_write_buffer_size())
            if output and not self._write(transport, output):
                return
            # No second check for output added meanwhile: `wake` has been called for it.
            if not self._endpoint.has_output_left:
                if self._endpoint.is_spent:
                    self.close()
                return
        # Other connections, and input of this peer, get a turn before the rest.
        self.wake()

    def _end(self, error: NetworkError, words: list[Body]) -> None:
        """Send the last output, end the session, and close once the peer can have read the output."""
        transport = self._transport
        if transport is None or transport.is_closing() or self._drop is not None:
            return
        must_linger = bool(words) and self._endpoint.is_established
        if not self._write(transport, words):
            return
        self._lose(error)
        if not must_linger:
            transport.close()
            return
        # Closing while bytes of the peer are unread would reset the connection: a peer that is still sending would find
        # it broken, and never read the output. TLS has no half-close: there the peer closes after reading it.
        if transport.can_write_eof():
            transport.write_eof()
        self._timer = asyncio.get_running_loop().call_later(LINGER_S, transport.abort)

    def _write(self, transport: asyncio.Transport, output: list[Body]) -> bool:
        """Write the output; if the transport is already closed, end the connection."""
        try:
            transport.writelines(output)
        except RuntimeError as error:
            # uvloop raises this if the handle was closed without notice to its protocol.
            self.connection_lost(error)
            return False
        return True

    def _lose(self, error: NetworkError) -> None:
        if self._drop is None:
            self._drop = bytearray(_DROPPED_BYTES)
            self._stop_timer()
            try:
                self._endpoint.lost(error)
                self._on_ended(self, error)
            except Exception as failure:
                # Channels may not know of the end, and no connection is left to notify them. The
                # caller has a handler of its own.
                asyncio.get_running_loop().call_soon(_raise, failure)

    def _established(self, name: str, session: Session) -> None:
        self._stop_timer()
        self._peer = name
        self._on_established(self, name, session)
        self._check_alive()

    def _check_alive(self) -> None:
        try:
            delay_ms = self._endpoint.check_alive()
        except ConnectionLostError as error:
            # Without sending more, which would wait for the peer.
            self._error = error
            self.abort()
            return
        if delay_ms is not None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(delay_ms / 1000, self._guard, self._check_alive)
            self._flush()

    def _handshake_timed_out(self) -> None:
        self.refuse(f"it did not authenticate itself within {self._handshake_timeout_s:g} s")

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _raise(error: Exception) -> None:
    raise error
