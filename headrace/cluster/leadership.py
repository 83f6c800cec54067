"""Leader election for the components of a cluster, and the sessions of leaders.

A session is a fencing token, fresh with every grant, so that messages of an earlier leader are refused. There is one
election so far, for a process without rivals: it grants at once, and addresses are handed over at start.
`interpret` translates the answer of a leader to a registration, for JobMaster, ResourceManager and TaskExecutor alike.
Source: Flink LeaderElection, EmbeddedLeaderService.
"""

from typing import Final, Protocol, TypeVar

from headrace.core.ids import FencingToken
from headrace.core.randomness import SeededRandom
from headrace.gateways.messages import RegistrationRefused, RegistrationRejected
from headrace.rpc.registration import Refused, Rejected

T = TypeVar("T", bound=FencingToken)

RESOURCE_MANAGER: Final = "resourcemanager"
DISPATCHER: Final = "dispatcher"


class LeaderElection(Protocol):
    """Grants the leadership of components."""

    def grant(self, component: str, token_type: type[T]) -> T:
        """Make the caller the leader of `component`; the token is the session that its messages carry."""
        ...


class EmbeddedLeaderElection:
    """Grants leadership at once. Implements LeaderElection for one process without rivals."""

    def __init__(self, random: SeededRandom) -> None:
        self._random: Final = random

    def grant(self, component: str, token_type: type[T]) -> T:
        return token_type.generate(self._random)


def job_component(job_id_hex: str) -> str:
    """The name under which the JobMaster of a job is elected."""
    return f"job-{job_id_hex}"


def always_leads() -> None:
    """Raise nothing: without high availability nobody else can lead."""


def interpret(response: object) -> Refused | Rejected | None:
    """Refused, Rejected, or None where the registration was accepted."""
    match response:
        case RegistrationRefused(reason):
            return Refused(reason)
        case RegistrationRejected(reason):
            return Rejected(reason)
        case _:
            return None
