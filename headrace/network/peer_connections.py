"""PeerConnections: which connection with a TaskManager is used, where both sides dial each other at once. Pure.

Of two connections both sides keep the one that the lower TaskManager id dialled. Whoever knows that it is on its way
waits for it, with all its channels. Only a side that could not know has used the other one by then: that one opens no
more channels, and ends with the last that it has. Source: Flink PartitionRequestClientFactory, for the waiting.
"""

from collections.abc import Callable
from typing import Final, Protocol

from headrace.core.mutual_proof import Role
from headrace.network.peer_session import PeerSession, Session

OnReady = Callable[[PeerSession], None]
OnError = Callable[[str], None]


class PeerConnection(Protocol):
    """One connection, as far as a choice needs to know it."""

    @property
    def role(self) -> Role:
        """Which side of it this is."""
        ...


class PeerConnections:
    """Connections by the name of the peer, and who waits for them. On the transport's thread."""

    def __init__(self) -> None:
        self._used: dict[str, tuple[PeerConnection, PeerSession]] = {}
        # Established, but not used unless the better one, which is on its way, fails.
        self._kept_back: dict[str, tuple[PeerConnection, PeerSession]] = {}
        self._incoming: Final[dict[PeerConnection, str]] = {}
        self._waiting: dict[str, list[tuple[OnReady, OnError]]] = {}

    def use(self, name: str, on_ready: OnReady, on_error: OnError) -> bool:
        """Call one of the two, now or later; return whether the caller has to dial."""
        found = self._used.get(name)
        if found is not None:
            on_ready(found[1])
            return False
        waiting = self._waiting.setdefault(name, [])
        waiting.append((on_ready, on_error))
        return len(waiting) == 1

    def claimed(self, connection: PeerConnection, name: str) -> None:
        """Whoever dialled this side says who it is, and has not proved it."""
        self._incoming[connection] = name

    def established(
        self, own_name: str, connection: PeerConnection, name: str, session: Session
    ) -> None:
        """A connection, of whichever direction, can be used."""
        self._incoming.pop(connection, None)
        if not isinstance(session, PeerSession):
            return
        better = Role.DIALLER if own_name < name else Role.ACCEPTOR
        used = self._used.get(name)
        if used is not None:
            if used[0].role is connection.role:
                # The peer noticed before us that the older one is dead.
                return
            if connection.role is not better:
                session.retire(connection.role)
                return
            used[1].retire(used[0].role)
        elif connection.role is not better and self._is_better_on_its_way(better, name):
            self._kept_back[name] = connection, session
            return
        self._use(name, connection, session)

    def dial_failed(self, name: str, reason: str) -> None:
        """This side cannot reach a peer."""
        self._fall_back(name, reason)

    def ended(self, connection: PeerConnection, dialled_name: str | None, reason: str) -> None:
        """A connection ended, or never was established."""
        for name, (known, _) in list(self._used.items()):
            if known is connection:
                del self._used[name]
                return
        for name, (known, _) in list(self._kept_back.items()):
            if known is connection:
                del self._kept_back[name]
        claimed = self._incoming.pop(connection, None)
        if claimed is not None and claimed in self._kept_back:
            self._fall_back(claimed, reason)
        elif dialled_name is not None and dialled_name not in self._used:
            self._fall_back(dialled_name, reason)

    def _is_better_on_its_way(self, better: Role, name: str) -> bool:
        if better is Role.DIALLER:
            return name in self._waiting
        return name in self._incoming.values()

    def _use(self, name: str, connection: PeerConnection, session: PeerSession) -> None:
        self._used[name] = connection, session
        spare = self._kept_back.pop(name, None)
        if spare is not None:
            spare[1].retire(spare[0].role)
        for on_ready, _ in self._waiting.pop(name, []):
            on_ready(session)

    def _fall_back(self, name: str, reason: str) -> None:
        spare = self._kept_back.pop(name, None)
        if spare is not None:
            self._use(name, *spare)
            return
        for _, on_error in self._waiting.pop(name, []):
            on_error(reason)
