"""SocketConnection: an asyncio protocol that reads into a ConnectionProtocol's buffers and writes frames together."""

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
"""With so many bytes unsent nothing more is taken from the session: what control frames have to wait for. One turn of
a channel may go beyond it (see producer_session.QUANTUM_BYTES)."""
ROUNDS_PER_FLUSH: Final = 4
UNIX_SEND_BUFFER_BYTES: Final = 1 << 20
LINGER_S: Final = 1.0
"""Time for which a peer that was told the end is read on, unless it closes before."""
LINGER_BYTES: Final = 32 << 20
"""Bytes of such a peer that are dropped at most: far more than can be on their way, less than it could send."""
LINGER_PAUSE_MS: Final = 25.0
"""After each `_LINGER_STEP_BYTES` of it, so that others have their turn and nobody gains by coming back at once."""
_LINGER_STEP_BYTES: Final = 1 << 20
_DROPPED_BYTES: Final = 64 * 1024


def enlarge_buffers(connection: socket.socket) -> None:
    """Let a Unix socket hold a few batches, for fewer and larger reads. TCP sizes its buffers by itself."""
    if connection.family == socket.AF_UNIX:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, UNIX_SEND_BUFFER_BYTES)


class SocketConnection(asyncio.BufferedProtocol):
    """One connection; everything runs on the network thread except `wake`.

    `on_ended` is called once it is of no use any more, `on_closed` when its socket is closed. An unexpected error of
    its own ends the connection, and so fails its channels; the loop does so itself with one of `buffer_updated`.
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
        # Once it has ended, what still comes is read into this and dropped.
        self._drop: bytearray | None = None
        self.host = "this host"
        """Address of the peer, unless it came over a Unix socket."""
        self.refusal = ""
        """Why the peer was refused, before it had proved itself."""
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
        """The session on this connection, or None until the peer is authenticated."""
        return self._endpoint.session

    def wake(self) -> None:
        if not self._is_wake_pending:
            self._is_wake_pending = True
            self._post(lambda: self._guard(self._flush))

    def close(self) -> None:
        """Leave on purpose: write what waits, say so, close."""
        error = self._error or ConnectionLostError(self._peer, "closed by this side")
        self._end(error, self._endpoint.farewell())

    def refuse(self, reason: str) -> None:
        """Drop a peer that has not proved itself."""
        self.refusal = reason
        self._error = ConnectionLostError(self._peer, reason)
        self.abort()

    def abort(self) -> None:
        """Drop the connection without another word."""
        if self._transport is not None:
            self._transport.abort()

    def abandon(self) -> None:
        """Drop a connection whose dial was given up, made or not; whoever dials tells those who wait for it."""
        self.expected_name = None
        self._error = ConnectionLostError(self._peer, "it was not made in time")
        self.abort()
        self.connection_lost(None)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = made = cast(asyncio.Transport, transport)
        self._guard(lambda: self._made(made))

    def _made(self, transport: asyncio.Transport) -> None:
        if self._drop is not None:
            # It was abandoned before.
            self.abort()
            return
        peer_name = transport.get_extra_info("peername")
        if isinstance(peer_name, tuple):
            self.host = str(cast(tuple[object, ...], peer_name)[0])
        self._on_opened(self)
        # Writing is paused with so many bytes or more, so that a flush always has some budget.
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
        # Whoever has something to send because of what came need not ask for a turn: it is flushed below.
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
            reason = "it was closed unexpectedly" if exc is None else f"{type(exc).__name__}: {exc}"
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
        """Let others have their turn; what the peer sends meanwhile waits in its socket."""
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
        """Run a callback of this connection; where that fails, nobody but the log would hear of it."""
        try:
            callback()
        except Exception as error:
            _LOG.exception("the connection with %s ends", self._peer)
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
            # No second look for what was added meanwhile, for which `wake` has been called.
            if not self._endpoint.has_output_left:
                if self._endpoint.is_spent:
                    self.close()
                return
        # Others, and what this peer sends, have a turn before the rest.
        self.wake()

    def _end(self, error: NetworkError, words: list[Body]) -> None:
        """Say the last words, let everybody here know, and close once the peer can have heard them."""
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
        # To close while bytes of the peer are unread would reset the connection: whoever is still sending would find
        # it broken, and never read the words. TLS knows no half-close: there the peer closes because of them.
        if transport.can_write_eof():
            transport.write_eof()
        self._timer = asyncio.get_running_loop().call_later(LINGER_S, transport.abort)

    def _write(self, transport: asyncio.Transport, output: list[Body]) -> bool:
        """Write, unless there is nothing to write to any more: that is the end of the connection."""
        try:
            transport.writelines(output)
        except RuntimeError as error:
            # uvloop, of a handle that was closed without a word to its protocol.
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
                # Channels may not have heard of it, and no connection is left whose end they would hear of. Whoever
                # called has a handler of its own.
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
            # Without another word, which would wait for the peer.
            self._error = error
            self.abort()
            return
        if delay_ms is not None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(delay_ms / 1000, self._guard, self._check_alive)
            self._flush()

    def _handshake_timed_out(self) -> None:
        self.refuse(f"it did not prove itself within {self._handshake_timeout_s:g} s")

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _raise(error: Exception) -> None:
    raise error
