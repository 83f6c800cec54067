"""Who leads which component, and under which session: fencing tokens, granted by an embedded election of one.

A token is fresh with every grant, so what an earlier leader sent is refused. Source: Flink LeaderElectionService,
EmbeddedLeaderService.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeVar

from headrace.core.ids import FencingToken
from headrace.core.randomness import SeededRandom

T = TypeVar("T", bound=FencingToken)

RESOURCE_MANAGER: Final = "resourcemanager"
DISPATCHER: Final = "dispatcher"


@dataclass(frozen=True)
class LeaderInformation:
    """A confirmed leader: where it is and which token its messages carry."""

    address: str
    token: FencingToken


LeaderListener = Callable[[LeaderInformation | None], None]


class EmbeddedLeadership:
    """Grants leadership to whoever asks last; for one process without rivals. Used on the control thread only."""

    def __init__(self, random: SeededRandom) -> None:
        self._random = random
        self._granted: dict[str, FencingToken] = {}
        self._leaders: dict[str, LeaderInformation] = {}
        self._listeners: dict[str, list[LeaderListener]] = {}

    def grant(self, component: str, token_type: type[T]) -> T:
        """Make the caller the leader of `component`; an earlier leader is one no more."""
        token = token_type.generate(self._random)
        self._granted[component] = token
        self._publish(component, None)
        return token

    def confirm(self, component: str, token: FencingToken, address: str) -> bool:
        """Publish the leader's address; without effect (False) under a token that was replaced or revoked."""
        if self._granted.get(component) != token:
            return False
        self._publish(component, LeaderInformation(address, token))
        return True

    def revoke(self, component: str, token: FencingToken) -> None:
        """The leader gives up; without effect for a token that was replaced."""
        if self._granted.get(component) == token:
            del self._granted[component]
            self._publish(component, None)

    def leader_of(self, component: str) -> LeaderInformation | None:
        """The confirmed leader, or None."""
        return self._leaders.get(component)

    def listen(self, component: str, listener: LeaderListener) -> Callable[[], None]:
        """Call `listener` now and with every change; returns what ends that."""
        listeners = self._listeners.setdefault(component, [])
        listeners.append(listener)
        listener(self.leader_of(component))
        return lambda: listeners.remove(listener)

    def _publish(self, component: str, leader: LeaderInformation | None) -> None:
        if self._leaders.get(component) == leader:
            return
        if leader is None:
            self._leaders.pop(component, None)
        else:
            self._leaders[component] = leader
        for listener in list(self._listeners.get(component, ())):
            listener(leader)


def job_component(job_id_hex: str) -> str:
    """The name under which the JobMaster of a job is elected."""
    return f"job-{job_id_hex}"
