"""BoundedHttpProtocol: closes HTTP connections that send no request head in time."""

import asyncio
from typing import Any, Final

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

REQUEST_HEAD_TIMEOUT_S: Final = 10.0
"""Time within which a connection has to send a whole head of a request; up to twice as long."""


class BoundedHttpProtocol(H11Protocol):
    """One connection, after its TLS handshake if it has one."""

    _seen: Any = None
    _watch: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Take a connection, and begin to look at it."""
        super().connection_made(transport)
        self._watch = self.loop.call_later(REQUEST_HEAD_TIMEOUT_S, self._look)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop looking at it."""
        if self._watch is not None:
            self._watch.cancel()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """Answer what is no HTTP; where the answer to its request is under way or done, the connection ends with it."""
        cycle: Any = self.cycle
        if cycle is not None:
            # Its request goes on no further: nobody reads what the application says of it.
            cycle.disconnected = True
            cycle.message_event.set()
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            super().send_400_response(msg)
        else:
            self.transport.close()

    def _look(self) -> None:
        """Close a connection that has sent no request since the last look."""
        cycle: Any = self.cycle
        if cycle is self._seen and (cycle is None or cycle.response_complete):
            self.transport.abort()
            return
        self._seen = cycle
        self._watch = self.loop.call_later(REQUEST_HEAD_TIMEOUT_S, self._look)
