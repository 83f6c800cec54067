"""TaskExecutorToResourceManagerConnection: keeps a TaskManager registered at the ResourceManager.

Tasks do not depend on it. A TaskManager that is not registered for `taskmanager.registration.timeout` ends.
Source: Flink TaskExecutorToResourceManagerConnection.
"""

import logging
from collections.abc import Callable
from typing import Final

from headrace.cluster.resource_manager_link import ResourceManagerLink
from headrace.cluster.task_executor.options import REGISTRATION_TIMEOUT
from headrace.core.clock import Cancellable
from headrace.core.errors import HeadraceError
from headrace.core.ids import AllocationId, InstanceId, ResourceId, SlotId
from headrace.core.process.failpoints import Failpoint, reach
from headrace.gateways.messages import ClusterPartitionReport, SlotReport
from headrace.gateways.resource_manager import (
    ResourceManagerGateway,
    TaskExecutorRegistered,
    TaskExecutorRegistration,
    TaskExecutorRegistrationResponse,
)
from headrace.rpc.endpoint import RpcEndpoint
from headrace.rpc.proxies import with_timeout

_LOG = logging.getLogger(__name__)

_REPORT_TIMEOUT_MS: Final = 1_000.0
"""Time in ms to wait for the answer; a JobMaster waits for it in turn, for twice as long."""


class TaskExecutorToResourceManagerConnection:
    """Registration of one TaskManager.

    `on_end(reason)` is called if it must end: rejected, or unregistered for too long.
    """

    def __init__(
        self,
        endpoint: RpcEndpoint,
        resource_id: ResourceId,
        leader_retrieval_address: str,
        *,
        registration: Callable[[], TaskExecutorRegistration],
        slot_report: Callable[[], SlotReport],
        cluster_partitions: Callable[[], ClusterPartitionReport],
        on_end: Callable[[str], None],
    ) -> None:
        self._endpoint: Final = endpoint
        self._resource_id: Final = resource_id
        self._registration_message: Final = registration
        self._slot_report: Final = slot_report
        self._cluster_partitions: Final = cluster_partitions
        self._on_end: Final = on_end
        self.link: Final = ResourceManagerLink(
            endpoint,
            leader_retrieval_address,
            register=self._register,
            on_registered=self._registered,
            on_rejected=lambda reason: on_end(f"the ResourceManager rejected it: {reason}"),
            on_lost=self._lost,
        )
        """Registration and heartbeats."""
        self._instance_id: InstanceId | None = None
        self._timer: Cancellable | None = None
        self._decommissioned = ""

    def connect(self) -> None:
        """Start to register."""
        self._start_timer()
        self.link.connect()

    def notify_slot_available(self, slot_id: SlotId, allocation_id: AllocationId) -> None:
        """Report that a slot is free, if connected; heartbeats report it as well."""
        gateway = self.link.gateway
        if gateway is not None and self._instance_id is not None:
            gateway.notify_slot_available(self._instance_id, slot_id, allocation_id)

    async def report_cluster_partitions(self, report: ClusterPartitionReport) -> None:
        """Report results that outlive their job, if connected; heartbeats report them as well."""
        gateway = self.link.gateway
        if gateway is not None and self._instance_id is not None:
            try:
                await with_timeout(gateway, _REPORT_TIMEOUT_MS).report_cluster_partitions(
                    self._resource_id, self._instance_id, report
                )
            except HeadraceError as error:
                _LOG.info("could not report results to the ResourceManager: %s", error)

    def decommission(self, cause: str) -> bool:
        """Report that this TaskManager will end soon, also to later leaders; return False if not connected."""
        gateway = self.link.gateway
        if gateway is None or self._instance_id is None:
            return False
        self._decommissioned = cause
        gateway.decommission_task_manager(self._resource_id, cause)
        return True

    def close(self, reason: str) -> None:
        """Disconnect from the ResourceManager."""
        gateway = self.link.gateway
        if gateway is not None:
            gateway.disconnect_task_manager(self._resource_id, reason)
        self._cancel_timer()
        self.link.close()

    async def _register(self, gateway: ResourceManagerGateway) -> TaskExecutorRegistrationResponse:
        return await gateway.register_task_executor(self._registration_message())

    def _registered(
        self, gateway: ResourceManagerGateway, response: TaskExecutorRegistrationResponse
    ) -> None:
        assert isinstance(response, TaskExecutorRegistered)
        self._instance_id = response.instance_id
        reach(Failpoint.TASK_MANAGER_REGISTERED)
        self._endpoint.spawn(self._report(gateway, response.instance_id), "first slot report")

    async def _report(self, gateway: ResourceManagerGateway, instance_id: InstanceId) -> None:
        partitions = self._cluster_partitions()
        try:
            if partitions.partitions:
                # Before the slots, after which the next leader of the cluster is responsible for this TaskManager.
                await gateway.report_cluster_partitions(self._resource_id, instance_id, partitions)
            await gateway.send_slot_report(self._resource_id, instance_id, self._slot_report())
        except HeadraceError as error:
            if self._instance_id == instance_id:
                self.link.lost(f"it did not accept the slot report: {error}")
        else:
            # Not earlier: a ResourceManager that registers but accepts no slots would keep this process forever.
            if self._instance_id == instance_id:
                self._cancel_timer()
            if self._decommissioned:
                gateway.decommission_task_manager(self._resource_id, self._decommissioned)

    def _lost(self, cause: str) -> None:
        _LOG.info("%s lost its ResourceManager: %s", self._resource_id, cause)
        self._instance_id = None
        self._start_timer()

    def _start_timer(self) -> None:
        if self._timer is None:
            timeout_ms = self._endpoint.settings.duration_ms(REGISTRATION_TIMEOUT)
            self._timer = self._endpoint.schedule_run_async(timeout_ms, self._alone_for_too_long)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _alone_for_too_long(self) -> None:
        why = self.link.last_failure
        self._on_end(
            f"no ResourceManager at {self.link.target_address} accepted its registration in time "
            "(taskmanager.registration.timeout)" + (f": {why}" if why else "")
        )
