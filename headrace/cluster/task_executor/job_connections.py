"""JobConnections: a TaskManager's registrations at the JobMasters whose slots it holds.

The connection begins when the ResourceManager requests a slot and ends with the job's last slot and task here. Once
registered, all slots that were not accepted yet are offered together. Source: Flink JobLeaderService, JobTable.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from headrace.cluster.leadership import interpret
from headrace.cluster.task_executor.task_local_state import TaskLocalState
from headrace.core.errors import HeadraceError
from headrace.core.ids import AllocationId, JobId, JobMasterId, ResourceId
from headrace.core.process.failpoints import Failpoint, reach
from headrace.core.shuffle_descriptors import TaskManagerLocation
from headrace.gateways.errors import StaleLeaderError
from headrace.gateways.job_master import (
    JobMasterGateway,
    TaskManagerRegistered,
    TaskManagerRegistration,
    TaskManagerRegistrationResponse,
)
from headrace.gateways.messages import SlotOffer
from headrace.rpc.endpoint import RpcEndpoint
from headrace.rpc.errors import AskTimeoutError, MailboxFullError
from headrace.rpc.heartbeat import HeartbeatLoss, HeartbeatReceiver
from headrace.rpc.registration import RetryingRegistration

_LOG = logging.getLogger(__name__)


class JobConnection:
    """Connection to one job's JobMaster, registered or registering."""

    def __init__(
        self,
        job_id: JobId,
        job_master_id: JobMasterId,
        registration: RetryingRegistration[JobMasterGateway, TaskManagerRegistrationResponse],
        resource_id: ResourceId,
    ) -> None:
        self.job_id: Final = job_id
        self.job_master_id: Final = job_master_id
        self.registration: Final = registration
        self.job_master_resource_id: ResourceId | None = None
        self.blob_server_address = ""
        # Answers to older offers are dropped: a newer one has offered the same slots again.
        self.offer_number = 0
        # Active slots that the JobMaster's last report did not list.
        self.unlisted_slots: set[AllocationId] = set()
        self.is_job_over = False
        self._resource_id: Final = resource_id

    @property
    def is_connected(self) -> bool:
        """Return whether the JobMaster has accepted this TaskManager."""
        return self.registration.is_registered

    @property
    def gateway(self) -> JobMasterGateway:
        """Gateway of the JobMaster; only while connected."""
        gateway = self.registration.gateway
        assert gateway is not None
        return gateway

    def leads(self, job_master_id: JobMasterId) -> bool:
        """Return whether messages of this session still count."""
        return self.is_connected and job_master_id == self.job_master_id

    def fail_slot(self, allocation_id: AllocationId, cause: str) -> None:
        """Tell the JobMaster that it has lost a slot."""
        if self.is_connected:
            self.gateway.fail_slot(self._resource_id, allocation_id, cause)

    async def pause(self, delay_ms: float) -> None:
        """Wait on the loop's clock."""
        await asyncio.sleep(delay_ms / 1000)


class JobConnections:
    """Connections of all jobs that this TaskManager works for.

    `offers_for(job_id)` returns the job's slots that are not accepted yet; `on_answered(connection, offered, accepted)`
    is called with the slots that the JobMaster accepted: it needs none of the others. `on_lost(job_id, cause)` is
    called when a JobMaster is gone for now, `on_rejected(job_id, reason)` when it will never accept this TaskManager.
    """

    def __init__(
        self,
        endpoint: RpcEndpoint,
        resource_id: ResourceId,
        location: TaskManagerLocation,
        local_copies: TaskLocalState | None,
        *,
        offers_for: Callable[[JobId], tuple[SlotOffer, ...]],
        on_answered: Callable[
            [JobConnection, tuple[SlotOffer, ...], tuple[AllocationId, ...]], None
        ],
        on_lost: Callable[[JobId, str], None],
        on_rejected: Callable[[JobId, str], None],
    ) -> None:
        self._endpoint: Final = endpoint
        self._offers_for: Final = offers_for
        self._on_answered: Final = on_answered
        self._on_lost: Final = on_lost
        self._on_rejected: Final = on_rejected
        self._resource_id: Final = resource_id
        self._location: Final = location
        self._local_copies: Final = local_copies
        self._connections: dict[JobId, JobConnection] = {}
        self._heartbeats: Final = HeartbeatReceiver(endpoint, self._heartbeat_lost)

    def find(self, job_id: JobId) -> JobConnection | None:
        """Return the job's connection, or None."""
        return self._connections.get(job_id)

    def refuse_stale(self, job_id: JobId, job_master_id: JobMasterId) -> None:
        """Raise StaleLeaderError for a session that another one has replaced."""
        connection = self._connections.get(job_id)
        if connection is not None and connection.job_master_id != job_master_id:
            raise StaleLeaderError(
                f"JobMaster {job_master_id} does not lead {job_id} on {self._resource_id} any more"
            )

    def follow(self, job_id: JobId, address: str, job_master_id: JobMasterId) -> None:
        """Register at the JobMaster that leads the job, unless that is in progress or done."""
        known = self._connections.get(job_id)
        if known is not None:
            if known.job_master_id == job_master_id:
                return
            self._forget(known)
            self._on_lost(job_id, "another JobMaster leads the job now")
        registration = RetryingRegistration(
            self._endpoint,
            target_address=address,
            gateway_type=JobMasterGateway,
            fencing_token=job_master_id,
            register=self._register_for(job_id),
            interpret=interpret,
            on_success=lambda _, response: self._registered(connection, response),
            on_rejected=lambda reason: self._on_rejected(job_id, reason),
            # Its job has ended: its waiting slots can serve other jobs.
            gives_up_when_gone=True,
        )
        connection = JobConnection(job_id, job_master_id, registration, self._resource_id)
        self._connections[job_id] = connection
        registration.start()

    def offer_slots(self, job_id: JobId) -> None:
        """Offer slots that were not accepted yet, if the JobMaster is connected."""
        connection = self._connections.get(job_id)
        if connection is not None and connection.is_connected:
            connection.offer_number += 1
            self._endpoint.spawn(
                self._offer(connection, connection.offer_number), f"slot offer to {job_id}"
            )

    def heartbeat_received(self, connection: JobConnection) -> None:
        """Handle a heartbeat of the JobMaster."""
        if connection.job_master_resource_id is not None:
            self._heartbeats.request_received(connection.job_master_resource_id)

    def reconnect(self, job_id: JobId, cause: str) -> None:
        """End the tasks of a JobMaster that is gone or has disconnected, and register again."""
        connection = self._connections.get(job_id)
        if connection is None:
            return
        _LOG.info("%s lost JobMaster of %s: %s", self._resource_id, job_id, cause)
        self._stop_heartbeats(connection)
        connection.registration.try_reconnect()
        self._on_lost(job_id, cause)

    def end_of_job(self, job_id: JobId) -> None:
        """Record the end of a job that its JobMaster announced, so that no disconnect message is needed."""
        connection = self._connections.get(job_id)
        if connection is not None:
            connection.is_job_over = True

    def close(self, job_id: JobId, reason: str) -> None:
        """Close the connection of a job that has no slot or task here any more."""
        connection = self._connections.get(job_id)
        if connection is None:
            return
        if connection.is_connected and not connection.is_job_over:
            connection.gateway.disconnect_task_manager(self._resource_id, reason)
        self._forget(connection)

    def close_all(self, reason: str) -> None:
        """Close all connections, because the TaskManager ends."""
        for job_id in tuple(self._connections):
            self.close(job_id, reason)

    def _forget(self, connection: JobConnection) -> None:
        self._stop_heartbeats(connection)
        connection.registration.close()
        del self._connections[connection.job_id]

    def _register_for(
        self, job_id: JobId
    ) -> Callable[[JobMasterGateway], Awaitable[TaskManagerRegistrationResponse]]:
        async def register(gateway: JobMasterGateway) -> TaskManagerRegistrationResponse:
            copies = self._local_copies
            local_state = () if copies is None else copies.attempts_of(job_id)
            message = TaskManagerRegistration(self._endpoint.address, self._location, local_state)
            return await gateway.register_task_manager(job_id, message)

        return register

    def _registered(
        self, connection: JobConnection, response: TaskManagerRegistrationResponse
    ) -> None:
        assert isinstance(response, TaskManagerRegistered)
        connection.job_master_resource_id = response.job_master_resource_id
        connection.blob_server_address = response.blob_server_address
        self._heartbeats.monitor_target(response.job_master_resource_id)
        self.offer_slots(connection.job_id)

    async def _offer(self, connection: JobConnection, number: int) -> None:
        job_id = connection.job_id
        while self._is_newest(connection, number):
            offers = self._offers_for(job_id)
            if not offers:
                return
            accepted: tuple[AllocationId, ...] = ()
            try:
                accepted = await connection.gateway.offer_slots(self._resource_id, offers)
                reach(Failpoint.SLOT_OFFERED)
            except (AskTimeoutError, MailboxFullError):
                continue
            except HeadraceError as error:
                _LOG.info("could not offer slots to %s: %s", job_id, error)
            if self._is_newest(connection, number):
                self._on_answered(connection, offers, accepted)
            return

    def _is_newest(self, connection: JobConnection, number: int) -> bool:
        return (
            self._connections.get(connection.job_id) is connection
            and connection.is_connected
            and connection.offer_number == number
        )

    def _heartbeat_lost(self, resource_id: ResourceId, loss: HeartbeatLoss) -> None:
        for connection in tuple(self._connections.values()):
            if connection.job_master_resource_id == resource_id:
                self.reconnect(connection.job_id, loss.text)

    def _stop_heartbeats(self, connection: JobConnection) -> None:
        if connection.job_master_resource_id is not None:
            self._heartbeats.unmonitor_target(connection.job_master_resource_id)
            connection.job_master_resource_id = None
