"""ResourceManagerLink: connects a JobMaster or TaskExecutor to the leading ResourceManager.

It looks up the leader, registers, answers heartbeats, notices silence and registers again; if another leader
follows, it registers there. Its owner makes the registration and handles the answer. Source: Flink
RegisteredRpcConnection, EstablishedResourceManagerConnection, ResourceManagerLeaderListener.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final, Generic, TypeVar

from headrace.cluster.leadership import interpret
from headrace.core.errors import HeadraceError
from headrace.core.ids import ResourceId, ResourceManagerId
from headrace.gateways.resource_manager import (
    JobMasterRegistered,
    JobMasterRegistrationResponse,
    LeaderRetrievalGateway,
    ResourceManagerGateway,
    ResourceManagerLeader,
    TaskExecutorRegistered,
    TaskExecutorRegistrationResponse,
)
from headrace.rpc.endpoint import RpcEndpoint
from headrace.rpc.heartbeat import HeartbeatLoss, HeartbeatReceiver
from headrace.rpc.options import ASK_TIMEOUT, REGISTRATION_ERROR_DELAY
from headrace.rpc.proxies import with_timeout
from headrace.rpc.registration import RetryingRegistration

_LOG = logging.getLogger(__name__)

_LEADER_WAIT_MS: Final = 30_000
"""Time in ms for which one request for the leader waits for another leader."""

R = TypeVar("R", JobMasterRegistrationResponse, TaskExecutorRegistrationResponse)


class ResourceManagerLink(Generic[R]):
    """Connection to the leading ResourceManager. All callbacks run on the main thread of `endpoint`.

    `leader_retrieval_address`: the endpoint that knows the leader. `on_registered(gateway, response)` is called after
    every registration, `on_lost(cause)` before the next attempt.
    """

    def __init__(
        self,
        endpoint: RpcEndpoint,
        leader_retrieval_address: str,
        *,
        register: Callable[[ResourceManagerGateway], Awaitable[R]],
        on_registered: Callable[[ResourceManagerGateway, R], None],
        on_rejected: Callable[[str], None],
        on_lost: Callable[[str], None],
    ) -> None:
        self._endpoint: Final = endpoint
        self._leader_retrieval_address: Final = leader_retrieval_address
        self._register: Final = register
        self._on_registered: Final = on_registered
        self._on_rejected: Final = on_rejected
        self._on_lost: Final = on_lost
        self._heartbeats: Final = HeartbeatReceiver(endpoint, self._heartbeat_lost)
        self._retrieval: asyncio.Task[None] | None = None
        self._retrieval_failure = ""
        self._leader_id: ResourceManagerId | None = None
        self._registration: RetryingRegistration[ResourceManagerGateway, R] | None = None

    @property
    def gateway(self) -> ResourceManagerGateway | None:
        """Gateway of the ResourceManager, or None while not registered there."""
        return None if self._registration is None else self._registration.gateway

    @property
    def target_address(self) -> str:
        """Address at which the ResourceManager, or the endpoint that knows it, is contacted."""
        registration = self._registration
        return (
            self._leader_retrieval_address if registration is None else registration.target_address
        )

    @property
    def last_failure(self) -> str:
        """Reason why the newest attempt to find the leader or to register failed; empty if none failed."""
        registered = "" if self._registration is None else self._registration.last_failure
        return registered or self._retrieval_failure

    def connect(self) -> None:
        """Start to look up the leader and to register; once."""
        assert self._retrieval is None, "connect() comes once"
        self._retrieval = self._endpoint.spawn(self._follow_leaders(), "leader retrieval")

    def is_leader(self, resource_manager_id: ResourceManagerId) -> bool:
        """Return whether messages of this session still count."""
        return resource_manager_id == self._leader_id

    def heartbeat_received(self, resource_id: ResourceId) -> None:
        """Handle a heartbeat of the ResourceManager."""
        self._heartbeats.request_received(resource_id)

    def lost(self, cause: str) -> None:
        """Register again, because the ResourceManager ended the connection or is gone."""
        self._heartbeats.stop()
        self._on_lost(cause)
        if self._registration is not None:
            self._registration.try_reconnect()

    def close(self) -> None:
        """Close the connection; no more callbacks follow."""
        self._heartbeats.stop()
        if self._retrieval is not None:
            self._retrieval.cancel()
        if self._registration is not None:
            self._registration.close()

    async def _follow_leaders(self) -> None:
        """Request the leader repeatedly; each request is answered when the leader changes, or after a while."""
        settings = self._endpoint.settings
        timeout_ms = _LEADER_WAIT_MS + settings.duration_ms(ASK_TIMEOUT)
        gateway: LeaderRetrievalGateway | None = None
        while True:
            try:
                if gateway is None:
                    gateway = await self._endpoint.rpc_service.connect(
                        self._leader_retrieval_address, LeaderRetrievalGateway
                    )
                leader = await with_timeout(gateway, timeout_ms).request_resource_manager(
                    self._leader_id, _LEADER_WAIT_MS
                )
            except HeadraceError as error:
                gateway = None
                if not self._retrieval_failure:
                    _LOG.info(
                        "%s cannot look up the leading ResourceManager: %s",
                        self._endpoint.address,
                        error,
                    )
                self._retrieval_failure = str(error)
                await asyncio.sleep(settings.duration_ms(REGISTRATION_ERROR_DELAY) / 1000)
            else:
                self._retrieval_failure = ""
                if leader is not None and not self.is_leader(leader.resource_manager_id):
                    self._follow(leader)

    def _follow(self, leader: ResourceManagerLeader) -> None:
        if self._registration is not None:
            self._heartbeats.stop()
            self._registration.close()
            self._on_lost(f"another one leads now, at {leader.address}")
        self._leader_id = leader.resource_manager_id
        self._registration = RetryingRegistration(
            self._endpoint,
            target_address=leader.address,
            gateway_type=ResourceManagerGateway,
            fencing_token=leader.resource_manager_id,
            register=self._register,
            interpret=interpret,
            on_success=self._registered,
            on_rejected=self._on_rejected,
        )
        self._registration.start()

    def _registered(self, gateway: ResourceManagerGateway, response: R) -> None:
        assert isinstance(response, JobMasterRegistered | TaskExecutorRegistered)
        self._heartbeats.monitor_target(response.resource_manager_resource_id)
        self._on_registered(gateway, response)

    def _heartbeat_lost(self, resource_id: ResourceId, loss: HeartbeatLoss) -> None:
        self.lost(loss.text)
