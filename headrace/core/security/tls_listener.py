"""TlsListener: accepts TCP connections and turns them to TLS, counting each from its first moment.

The servers of asyncio hand a connection over once it is TLS. Until then nobody would know of it, and silent ones would
take every descriptor of the process. Here the oldest of too many gives way to the newest.
"""

import asyncio
import functools
import socket
import ssl
from collections.abc import Callable
from typing import Any, Final

from headrace.core.security.hmac_handshake import STRANGERS_MAX, Strangers
from headrace.core.security.refusal_log import RefusalLog
from headrace.core.threads import spawn

_BACKLOG: Final = 100
_PAUSE_S: Final = 0.1
"""Before the next try where a connection cannot be accepted, as when no descriptor is left."""


class TlsListener:
    """Listens at once, and accepts once started, on the running loop. A connection that is TLS gets a protocol.

    `host` is an address or a name of this host; OSError where it, or `port`, is not to be had.
    """

    def __init__(
        self,
        factory: Callable[[], asyncio.BaseProtocol],
        host: str,
        port: int,
        context: ssl.SSLContext,
        handshake_timeout_s: float,
        refusals: RefusalLog,
        count_max: int = STRANGERS_MAX,
    ) -> None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listening: Final = socket.create_server((host, port), family=family, backlog=_BACKLOG)
        self._listening.setblocking(False)
        self._factory: Final = factory
        self._context: Final = context
        self._handshake_timeout_s: Final = handshake_timeout_s
        self._refusals: Final = refusals
        self._openings: Final = Strangers[asyncio.Task[None]](count_max)
        self._tasks: Final[set[asyncio.Task[Any]]] = set()

    @property
    def sockets(self) -> tuple[socket.socket, ...]:
        """As a server of asyncio has them."""
        return (self._listening,)

    @property
    def opening_count(self) -> int:
        """Connections that are not TLS yet."""
        return len(self._openings)

    def start(self) -> None:
        """Begin to accept."""
        spawn(self._accept(), asyncio.get_running_loop(), "accept", self._tasks)

    def close(self) -> None:
        """Accept nobody any more, and drop connections that are not TLS yet."""
        for task in tuple(self._tasks):
            task.cancel()
        self._listening.close()

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, address = await loop.sock_accept(self._listening)
            except OSError:
                # The peer is gone already, or no descriptor is left: those of the silent come free in time.
                await asyncio.sleep(_PAUSE_S)
                continue
            opening = spawn(self._open(connection), loop, "opening", self._tasks)
            oldest = self._openings.opened(opening)
            opening.add_done_callback(functools.partial(self._opened, connection, address[0]))
            if oldest is not None:
                oldest.cancel()

    async def _open(self, connection: socket.socket) -> None:
        await asyncio.get_running_loop().connect_accepted_socket(
            self._factory,
            connection,
            ssl=self._context,
            ssl_handshake_timeout=self._handshake_timeout_s,
        )

    def _opened(self, connection: socket.socket, host: str, opening: asyncio.Task[None]) -> None:
        is_waiting = self._openings.no_longer(opening)
        error = None if opening.cancelled() else opening.exception()
        if not opening.cancelled() and error is None:
            return
        connection.close()
        if error is not None:
            self._refusals.tell(host, f"TLS: {error or type(error).__name__}")
        elif not is_waiting:
            self._refusals.tell(host, "too many others have not come to TLS")
