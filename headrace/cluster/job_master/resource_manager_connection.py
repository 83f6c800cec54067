"""ResourceManagerConnection: a JobMaster's registration at the ResourceManager, and the declaration of its needs.

What is declared is always the whole set, sent until the newest one was taken. Source: Flink
JobMaster.ResourceManagerConnection, DefaultDeclareResourceRequirementServiceConnectionManager.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from headrace.cluster.registration_answers import interpret
from headrace.core.errors import HeadraceError
from headrace.core.ids import JobId, JobMasterId, ResourceId, ResourceManagerId
from headrace.gateways.resource_manager import (
    JobMasterRegistered,
    JobMasterRegistrationResponse,
    ResourceManagerGateway,
    ResourceRequirement,
    ResourceRequirements,
)
from headrace.rpc.endpoint import RpcEndpoint
from headrace.rpc.heartbeat import HeartbeatLoss, HeartbeatReceiver
from headrace.rpc.proxies import with_timeout
from headrace.rpc.registration import RetryingRegistration

_LOG = logging.getLogger(__name__)

_RETRY_MS: Final = 500.0
_EXPLAIN_TIMEOUT_MS: Final = 2_000.0


class ResourceManagerConnection:
    """`requirements()` gives the present set; `on_rejected(reason)` hears that there will never be slots."""

    def __init__(
        self,
        endpoint: RpcEndpoint,
        resource_id: ResourceId,
        job_id: JobId,
        job_master_id: JobMasterId,
        *,
        address: str,
        resource_manager_id: ResourceManagerId,
        requirements: Callable[[], tuple[ResourceRequirement, ...]],
        on_rejected: Callable[[str], None],
    ) -> None:
        self._endpoint: Final = endpoint
        self._resource_id: Final = resource_id
        self._job_id: Final = job_id
        self._job_master_id: Final = job_master_id
        self._resource_manager_id: Final = resource_manager_id
        self._requirements: Final = requirements
        self._declaration_number = 0
        self._heartbeats: Final = HeartbeatReceiver(endpoint, self._heartbeat_lost)
        self._registration: Final = RetryingRegistration(
            endpoint,
            target_address=address,
            gateway_type=ResourceManagerGateway,
            fencing_token=resource_manager_id,
            register=self._register,
            interpret=interpret,
            on_success=self._registered,
            on_rejected=on_rejected,
        )

    def connect(self) -> None:
        """Begin to register."""
        self._registration.start()

    def declare(self) -> None:
        """Tell the present requirements, as soon as that is possible."""
        self._declaration_number += 1
        gateway = self._registration.gateway
        if gateway is not None:
            self._endpoint.spawn(
                self._declare(gateway, self._declaration_number), "declare requirements"
            )

    async def explain(self) -> str:
        """Ask what is missing and why; says so where nobody answers."""
        gateway = self._registration.gateway
        if gateway is None:
            why = self._registration.last_failure
            return "the ResourceManager cannot be reached" + (f": {why}" if why else "")
        try:
            overview = await with_timeout(gateway, _EXPLAIN_TIMEOUT_MS).request_resource_overview()
        except HeadraceError as error:
            return f"the ResourceManager does not answer: {error}"
        return overview.explanation or "the slots are on their way"

    def heartbeat_received(self, resource_id: ResourceId) -> None:
        """The ResourceManager asked for a heartbeat."""
        self._heartbeats.request_received(resource_id)

    def is_leader(self, resource_manager_id: ResourceManagerId) -> bool:
        """Whether messages of this session may change anything here."""
        return resource_manager_id == self._resource_manager_id

    def lost(self, cause: str) -> None:
        """The ResourceManager ended the connection, or is gone: register again."""
        _LOG.info("job %s lost its ResourceManager: %s", self._job_id, cause)
        self._heartbeats.stop()
        self._registration.try_reconnect()

    def close(self, reason: str) -> None:
        """Nothing is needed any more."""
        gateway = self._registration.gateway
        if gateway is not None:
            gateway.disconnect_job_master(self._job_id, self._job_master_id, reason)
        self._declaration_number += 1
        self._heartbeats.stop()
        self._registration.close()

    async def _register(self, gateway: ResourceManagerGateway) -> JobMasterRegistrationResponse:
        return await gateway.register_job_master(
            self._job_master_id, self._resource_id, self._endpoint.address, self._job_id
        )

    def _registered(
        self, gateway: ResourceManagerGateway, response: JobMasterRegistrationResponse
    ) -> None:
        assert isinstance(response, JobMasterRegistered)
        self._heartbeats.monitor_target(response.resource_manager_resource_id)
        self.declare()

    async def _declare(self, gateway: ResourceManagerGateway, number: int) -> None:
        while number == self._declaration_number and self._registration.gateway is gateway:
            requirements = ResourceRequirements(
                self._job_id, self._endpoint.address, self._requirements()
            )
            try:
                await gateway.declare_required_resources(self._job_master_id, requirements)
                return
            except HeadraceError as error:
                _LOG.info("requirements of job %s were not taken: %s", self._job_id, error)
                await asyncio.sleep(_RETRY_MS / 1000)

    def _heartbeat_lost(self, resource_id: ResourceId, loss: HeartbeatLoss) -> None:
        self.lost(loss.text)
