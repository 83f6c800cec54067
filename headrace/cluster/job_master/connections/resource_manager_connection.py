"""ResourceManagerConnection: a JobMaster's registration at the ResourceManager, and the declaration of its needs.

Each declaration is the whole set of needs; the newest one is sent until it is acknowledged. Source: Flink
JobMaster.ResourceManagerConnection, DefaultDeclareResourceRequirementServiceConnectionManager.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from headrace.cluster.resource_manager_link import ResourceManagerLink
from headrace.core.errors import HeadraceError
from headrace.core.ids import JobId, JobMasterId, ResourceId
from headrace.gateways.resource_manager import (
    JobMasterRegistrationResponse,
    ResourceManagerGateway,
    ResourceRequirement,
    ResourceRequirements,
)
from headrace.rpc.endpoint import RpcEndpoint
from headrace.rpc.proxies import with_timeout

_LOG = logging.getLogger(__name__)

_RETRY_MS: Final = 500.0
_EXPLAIN_TIMEOUT_MS: Final = 2_000.0


class ResourceManagerConnection:
    """Declares the needs of one JobMaster.

    `requirements()` returns them; `on_rejected(reason)` is called if the job will never get slots.
    """

    def __init__(
        self,
        endpoint: RpcEndpoint,
        resource_id: ResourceId,
        job_id: JobId,
        job_master_id: JobMasterId,
        *,
        leader_retrieval_address: str,
        requirements: Callable[[], tuple[ResourceRequirement, ...]],
        on_rejected: Callable[[str], None],
    ) -> None:
        self._endpoint: Final = endpoint
        self._resource_id: Final = resource_id
        self._job_id: Final = job_id
        self._job_master_id: Final = job_master_id
        self._requirements: Final = requirements
        self._declaration_number = 0
        self.link: Final = ResourceManagerLink(
            endpoint,
            leader_retrieval_address,
            register=self._register,
            on_registered=self._registered,
            on_rejected=on_rejected,
            on_lost=self._lost,
        )
        """Registration and heartbeats at the ResourceManager."""

    def declare(self) -> None:
        """Send the current requirements, or send them once registered at the ResourceManager."""
        self._declaration_number += 1
        gateway = self.link.gateway
        if gateway is not None:
            self._endpoint.spawn(
                self._declare(gateway, self._declaration_number), "declare requirements"
            )

    async def explain(self) -> str:
        """Ask the ResourceManager for missing slots and the reason; the text also tells if it cannot be reached."""
        gateway = self.link.gateway
        if gateway is None:
            why = self.link.last_failure
            return "the ResourceManager cannot be reached" + (f": {why}" if why else "")
        try:
            overview = await with_timeout(gateway, _EXPLAIN_TIMEOUT_MS).request_resource_overview()
        except HeadraceError as error:
            return f"the ResourceManager does not respond: {error}"
        return overview.explanation or "the slots are being allocated"

    def close(self, reason: str) -> None:
        """Disconnect, because the job needs no slots any more."""
        gateway = self.link.gateway
        if gateway is not None:
            gateway.disconnect_job_master(self._job_id, self._job_master_id, reason)
        self._declaration_number += 1
        self.link.close()

    async def _register(self, gateway: ResourceManagerGateway) -> JobMasterRegistrationResponse:
        return await gateway.register_job_master(
            self._job_master_id, self._resource_id, self._endpoint.address, self._job_id
        )

    def _registered(
        self, gateway: ResourceManagerGateway, response: JobMasterRegistrationResponse
    ) -> None:
        self.declare()

    async def _declare(self, gateway: ResourceManagerGateway, number: int) -> None:
        while number == self._declaration_number and self.link.gateway is gateway:
            requirements = ResourceRequirements(
                self._job_id, self._endpoint.address, self._requirements()
            )
            try:
                await gateway.declare_required_resources(self._job_master_id, requirements)
                return
            except HeadraceError as error:
                _LOG.info(
                    "the ResourceManager did not accept the requirements of job %s: %s",
                    self._job_id,
                    error,
                )
                await asyncio.sleep(_RETRY_MS / 1000)

    def _lost(self, cause: str) -> None:
        _LOG.info("job %s lost its ResourceManager: %s", self._job_id, cause)
