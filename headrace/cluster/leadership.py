"""Leader election for the components of a cluster, and the sessions of leaders.

A session is a fencing token, new with every grant, so that messages of an earlier leader are refused. There is one
election so far, for a process without rivals: it grants at once. LeaderDirectory gives TaskManagers and JobMasters
the address of the leading ResourceManager, also after a replacement.
`interpret` translates the answer of a leader to a registration, for JobMaster, ResourceManager and TaskExecutor.
Source: Flink LeaderElection, EmbeddedLeaderService, LeaderRetrievalListener.
"""

import asyncio
from typing import Final, Protocol, TypeVar

from headrace.core.ids import FencingToken, ResourceManagerId
from headrace.core.randomness import SeededRandom
from headrace.gateways.errors import NotLeadingError
from headrace.gateways.messages import RegistrationRefused, RegistrationRejected
from headrace.gateways.resource_manager import LeaderRetrievalGateway, ResourceManagerLeader
from headrace.rpc.endpoint import RpcEndpoint
from headrace.rpc.proxies import when_ended
from headrace.rpc.registration import Refused, Rejected
from headrace.rpc.service import RpcService

T = TypeVar("T", bound=FencingToken)

RESOURCE_MANAGER: Final = "resourcemanager"
DISPATCHER: Final = "dispatcher"


class LeaderElection(Protocol):
    """Grants the leadership of components."""

    def grant(self, component: str, token_type: type[T]) -> T:
        """Make the caller the leader of `component`; return the session token that its messages carry."""
        ...


class EmbeddedLeaderElection:
    """Grants leadership at once. Implements LeaderElection for one process without rivals."""

    def __init__(self, random: SeededRandom) -> None:
        self._random: Final = random

    def grant(self, component: str, token_type: type[T]) -> T:
        return token_type.generate(self._random)


class LeaderDirectory(RpcEndpoint, LeaderRetrievalGateway):
    """Returns the leader of this process on request. One per cluster; it outlives each leader."""

    def __init__(self, rpc_service: RpcService) -> None:
        super().__init__(rpc_service, rpc_service.create_endpoint_name("leaders"))
        self._resource_manager: ResourceManagerLeader | None = None
        self._changed: asyncio.Future[None] = rpc_service.loop.create_future()

    def confirm(self, address: str, resource_manager_id: ResourceManagerId) -> None:
        """Record that the ResourceManager of this session leads now at `address`."""
        self._resource_manager = ResourceManagerLeader(address, resource_manager_id)
        changed, self._changed = self._changed, self.rpc_service.loop.create_future()
        changed.set_result(None)

    async def request_resource_manager(
        self, known: ResourceManagerId | None, wait_max_ms: int
    ) -> ResourceManagerLeader | None:
        leader = self._resource_manager
        if leader is None or leader.resource_manager_id == known:
            await asyncio.wait([self._changed], timeout=wait_max_ms / 1000)
        return self._resource_manager


def job_component(job_id_hex: str) -> str:
    """Return the name under which the JobMaster of a job is elected."""
    return f"job-{job_id_hex}"


def tell_end(gateway: object, component: str) -> None:
    """Let pending calls of an ended leader fail with NotLeadingError, which names the new leader if it is known."""
    reason = f"its {component} ended before it answered, and either another one follows or the cluster ends"
    when_ended(gateway, lambda: NotLeadingError(reason))


def always_leads() -> None:
    """Do nothing: without high availability no other process can lead."""


def interpret(response: object) -> Refused | Rejected | None:
    """Return Refused or Rejected, or None if the registration was accepted."""
    match response:
        case RegistrationRefused(reason):
            return Refused(reason)
        case RegistrationRejected(reason):
            return Rejected(reason)
        case _:
            return None
