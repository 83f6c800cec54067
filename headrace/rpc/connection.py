"""RpcConnection: one TCP connection between two processes: first authentication, then frames. Both sides use it.

OutstandingAsks holds the asks to other processes: the caller and the connection for each call id.
"""

import asyncio
import logging
import socket
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, Final, cast

from headrace.core.error_codec import decode_error
from headrace.core.security.hmac_handshake import SEAL_SIZE, FrameSeal
from headrace.rpc.authentication import Authentication
from headrace.rpc.codec import LENGTH, Answer, Response, RpcFrameDecoder
from headrace.rpc.errors import RecipientUnreachableError, RpcError, RpcHandshakeError

_LOG = logging.getLogger(__name__)

_A_DIALLER: Final = "a dialler at "
_CONCAT_SIZE_MAX: Final = 64 * 1024


class RpcConnection(asyncio.Protocol):
    """Owns the transport of one connection.

    `on_open` is called when the socket is open (and, with TLS, encrypted), `on_frame` with every frame of an
    authenticated peer. `established` completes when the peer is authenticated, or fails with RpcHandshakeError;
    `on_lost` is called once, at the end, with the reason and the error if there was one, `on_refused` with host and
    reason if the peer could not be authenticated.
    """

    def __init__(
        self,
        authentication: Authentication,
        *,
        loop: asyncio.AbstractEventLoop,
        frame_size: int,
        send_buffer_size: int,
        proof_timeout_ms: float,
        is_sealed: bool,
        on_open: Callable[["RpcConnection"], None],
        on_frame: Callable[["RpcConnection", bytes], None],
        on_lost: Callable[["RpcConnection", str, BaseException | None], None],
        on_refused: Callable[[str, str], None],
    ) -> None:
        self._authentication = authentication
        self._loop = loop
        self._decoder = RpcFrameDecoder(frame_size + SEAL_SIZE if is_sealed else frame_size)
        self._is_sealed = is_sealed
        self._sending: FrameSeal | None = None
        self._receiving: FrameSeal | None = None
        self._frame_size = frame_size
        self._send_buffer_size = send_buffer_size
        self._proof_timeout_ms = proof_timeout_ms
        self._on_open = on_open
        self._on_frame = on_frame
        self._on_lost = on_lost
        self._on_refused = on_refused
        self._transport: asyncio.Transport | None = None
        self._proof_timer: asyncio.TimerHandle | None = None
        self._error: BaseException | None = None
        self.established: asyncio.Future[None] = loop.create_future()
        self.closed: asyncio.Future[None] = loop.create_future()
        self.is_proven = False
        self.limit_bytes = frame_size
        """Largest frame that both sides accept; known once the peer is authenticated."""

    @property
    def remote(self) -> str:
        """Return the peer's name for messages: the authority that was dialled, or the address of the dialler."""
        return self._authentication.remote

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the hello, and expect the peer's within the timeout."""
        self._transport = cast(asyncio.Transport, transport)
        if not self.remote:
            # A peer that hung up before it was accepted has no address any more.
            host, port = (transport.get_extra_info("peername") or ("?", "?"))[:2]
            self._authentication.remote = f"{_A_DIALLER}{host}:{port}"
        _tune(transport.get_extra_info("socket"), self._proof_timeout_ms)
        self._proof_timer = self._loop.call_later(
            self._proof_timeout_ms / 1000, self._proof_timed_out
        )
        self._transport.write(self._authentication.hello)
        self._on_open(self)

    def data_received(self, data: bytes) -> None:
        """Process received bytes."""
        if self._error is not None:
            return
        try:
            if not self.is_proven:
                data = self._authenticate(data)
            for frame in self._decoder.feed(data):
                self._on_frame(self, self._opened(frame))
        except RpcError as error:
            self.fail(error)

    def connection_lost(self, exc: Exception | None) -> None:
        """Handle the closing of the socket by either side."""
        self._stop_proof_timer()
        error = self._error or exc
        reason = str(error) if error is not None else "the peer closed the connection"
        if not self.established.done():
            self.established.set_exception(
                error
                if isinstance(error, RpcHandshakeError)
                else RpcHandshakeError(self.remote, f"{reason} before it was authenticated")
            )
            self.established.exception()  # of an accepted connection nobody asks
        if not self.closed.done():
            self.closed.set_result(None)
        self._on_lost(self, reason, error)

    @property
    def is_stranger(self) -> bool:
        """Return whether the connection is open and its peer not authenticated yet."""
        return not self.is_proven and self._error is None

    def send(self, frame: bytes) -> None:
        """Send a frame; the connection is dropped if the peer does not read."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        seal = b"" if self._sending is None else self._sending.seal(frame)
        prefix = LENGTH.pack(len(frame) + len(seal))
        if len(frame) <= _CONCAT_SIZE_MAX:
            transport.write(prefix + frame + seal)
        else:
            transport.writelines((prefix, frame, seal))
        unsent = transport.get_write_buffer_size()
        if unsent > self._send_buffer_size:
            self.fail(
                RpcError(
                    f"{self.remote} does not read: {unsent} bytes are unsent (limit: 'headrace.rpc.send-buffer-size')"
                )
            )

    def _opened(self, sealed: bytes) -> bytes:
        """Return the content of a frame that the peer sealed; RpcError if the seal is invalid."""
        if self._receiving is None:
            return sealed
        frame, seal = sealed[:-SEAL_SIZE], sealed[-SEAL_SIZE:]
        if not self._receiving.holds(frame, seal):
            raise RpcError(
                f"a frame on the connection with {self.remote} does not have that peer's seal"
            )
        return frame

    def fail(self, error: BaseException) -> None:
        """Drop the connection at once because of `error`."""
        if self._error is None:
            self._error = error
            if self.remote.startswith(_A_DIALLER) and not self.is_proven:
                host = self.remote.removeprefix(_A_DIALLER).rpartition(":")[0]
                self._on_refused(host, str(error))
            else:
                _LOG.warning("connection with %s dropped: %s", self.remote, error)
        if self._transport is not None:
            self._transport.abort()

    def pause_reading(self) -> None:
        """Stop reading from the socket; the kernel's buffers fill up."""
        if self._transport is not None:
            self._transport.pause_reading()

    def close(self) -> None:
        """Send what is buffered, then close."""
        if self._transport is not None:
            self._transport.close()

    def _authenticate(self, data: bytes) -> bytes:
        reply, proven = self._authentication.receive(data)
        assert self._transport is not None
        if reply:
            self._transport.write(reply)
        if proven is None:
            return b""
        self._stop_proof_timer()
        self.is_proven = True
        self.limit_bytes = min(self._frame_size, proven.frame_size_max)
        if self._is_sealed:
            self._sending, self._receiving = proven.sending, proven.receiving
        self.established.set_result(None)
        return proven.rest

    def _proof_timed_out(self) -> None:
        self.fail(
            RpcHandshakeError(
                self.remote, f"the peer was not authenticated within {self._proof_timeout_ms:g} ms"
            )
        )

    def _stop_proof_timer(self) -> None:
        if self._proof_timer is not None:
            self._proof_timer.cancel()
            self._proof_timer = None


def _tune(sock: socket.socket | None, timeout_ms: float) -> None:
    """Let the kernel notice a lost host: unacknowledged bytes break the connection after the timeout."""
    if sock is None or sock.family not in (socket.AF_INET, socket.AF_INET6):
        return
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    user_timeout = getattr(socket, "TCP_USER_TIMEOUT", None)
    if user_timeout is not None:
        sock.setsockopt(socket.IPPROTO_TCP, user_timeout, int(timeout_ms))


@dataclass(frozen=True, eq=False)
class _Ask:
    future: asyncio.Future[Any]
    route: Hashable
    target: str
    method: str


class OutstandingAsks:
    """Asks that wait for a response. Call ids are never reused, so that late or duplicate responses are dropped."""

    def __init__(self) -> None:
        self._asks: dict[int, _Ask] = {}
        self._last_call_id = 0

    def __len__(self) -> int:
        return len(self._asks)

    def open(self, future: asyncio.Future[Any], route: Hashable, target: str, method: str) -> int:
        """Add an ask and return its call id, > 0."""
        self._last_call_id += 1
        self._asks[self._last_call_id] = _Ask(future, route, target, method)
        return self._last_call_id

    def forget(self, call_id: int) -> None:
        """Remove an ask whose caller no longer waits."""
        self._asks.pop(call_id, None)

    def complete(self, response: Response) -> None:
        """Pass a response to the ask that waits for it."""
        ask = self._asks.pop(response.call_id, None)
        if ask is None or ask.future.done():
            return
        if isinstance(response, Answer):
            ask.future.set_result(response.value)
        else:
            ask.future.set_exception(decode_error(response.failure, ask.target))

    def fail(self, call_id: int, error: Exception) -> None:
        """Fail one ask that could not be sent."""
        ask = self._asks.pop(call_id, None)
        if ask is not None and not ask.future.done():
            ask.future.set_exception(error)

    def fail_route(self, route: Hashable, reason: str, cause: BaseException | None = None) -> None:
        """Fail all asks over a lost connection."""
        for call_id, ask in tuple(self._asks.items()):
            if ask.route == route:
                self._break_off(call_id, ask, reason, cause)

    def fail_all(self, reason: str) -> None:
        """Fail all asks, as the process stops."""
        for call_id, ask in tuple(self._asks.items()):
            self._break_off(call_id, ask, reason, None)

    def _break_off(self, call_id: int, ask: _Ask, reason: str, cause: BaseException | None) -> None:
        del self._asks[call_id]
        if not ask.future.done():
            error = RecipientUnreachableError(ask.target, ask.method, reason)
            error.__cause__ = cause
            ask.future.set_exception(error)
