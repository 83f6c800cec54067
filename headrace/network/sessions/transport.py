"""Interfaces between the exchange and its transport, implemented by sockets and by the simulation.

All state of sessions, credits and remote channels belongs to the transport's thread; `post` is the way in.
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
    """One connection, as its session sees it."""

    @property
    def peer(self) -> str:
        """Name of the peer, for messages."""
        ...

    def wake(self) -> None:
        """Have the session's output taken soon. Any thread."""
        ...


class TransportHost(Protocol):
    """The ShuffleEnvironment as its transport sees it."""

    @property
    def name(self) -> str:
        """Resource id of this TaskManager."""
        ...

    @property
    def secret(self) -> bytes:
        """The cluster's secret."""
        ...

    @property
    def clock(self) -> Clock:
        """Clock of the signs of life."""
        ...

    @property
    def keep_alive(self) -> KeepAlivePolicy:
        """Interval of keep-alive signs, and timeout after which a connection is given up."""
        ...

    @property
    def random(self) -> SeededRandom:
        """Source of challenges and names; only the transport's thread draws from it."""
        ...

    @property
    def features(self) -> int:
        """Bit set of Feature: what this side is ready for."""
        ...

    def open_session(self, link: Link, peer_name: str, features: int) -> "Session":
        """A peer has proved itself: return who speaks with it; `features` are what both sides are ready for."""
        ...


class Transport(Protocol):
    """Moves frames between TaskManagers."""

    def start(self, host: TransportHost) -> TaskManagerLocation:
        """Begin to accept; return where peers find this side. PortInUseError."""
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
        """Find or make the connection with a TaskManager. The transport's thread only."""
        ...

    def close(self) -> None:
        """Close every connection and stop accepting; callbacks posted before have run when it returns."""
        ...
