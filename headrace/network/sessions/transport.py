"""Interfaces between the exchange and its transport, implemented by sockets and by the simulation.

All state of sessions, credits and remote channels belongs to the transport's thread; other threads use `post`.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from headrace.core.clock import Cancellable, Clock
from headrace.core.randomness import SeededRandom
from headrace.core.shuffle_descriptors import TaskManagerLocation
from headrace.network.wire.keepalive import KeepAlivePolicy

if TYPE_CHECKING:
    from headrace.network.sessions.peer_session import PeerSession, Session


class Link(Protocol):
    """Connection as seen by its session."""

    @property
    def peer(self) -> str:
        """Name of the peer, for messages."""
        ...

    def wake(self) -> None:
        """Request that the session's output be sent soon. Any thread."""
        ...


class TransportHost(Protocol):
    """ShuffleEnvironment as seen by its transport."""

    @property
    def name(self) -> str:
        """Resource id of this TaskManager."""
        ...

    @property
    def secret(self) -> bytes:
        """Secret shared by the processes of the cluster."""
        ...

    @property
    def clock(self) -> Clock:
        """Clock for keepalives."""
        ...

    @property
    def keep_alive(self) -> KeepAlivePolicy:
        """Interval of keepalives, and time-out after which a connection is closed."""
        ...

    @property
    def random(self) -> SeededRandom:
        """Random source of challenges and names; used only on the transport's thread."""
        ...

    @property
    def features(self) -> int:
        """Bit set of the Feature values that this side supports."""
        ...

    def open_session(self, link: Link, peer_name: str, features: int) -> "Session":
        """Return the session for an authenticated peer; `features` are those that both sides support."""
        ...


class Transport(Protocol):
    """Moves frames between TaskManagers."""

    def start(self, host: TransportHost) -> TaskManagerLocation:
        """Start to accept connections; return the location of this side. PortInUseError if the port cannot be bound."""
        ...

    def post(self, callback: Callable[[], None]) -> None:
        """Run `callback` on the transport's thread, in the order of posting. Any thread."""
        ...

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> Cancellable:
        """Run `callback` on the transport's thread after `delay_ms`. The transport's thread only."""
        ...

    def connect(
        self,
        location: TaskManagerLocation,
        on_ready: Callable[["PeerSession"], None],
        on_error: Callable[[str], None],
    ) -> None:
        """Find or make a connection with a TaskManager. The transport's thread only."""
        ...

    def close(self) -> None:
        """Close every connection and stop accepting; callbacks posted before have run when it returns."""
        ...
