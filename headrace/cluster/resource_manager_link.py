"""ResourceManagerLink: connects a JobMaster or TaskExecutor to one ResourceManager.

It registers, answers heartbeats, notices silence and registers again. Its owner makes the registration and acts on the
answer. Source: Flink RegisteredRpcConnection, EstablishedResourceManagerConnection.
"""

from collections.abc import Awaitable, Callable
from typing import Final, Generic, TypeVar

from headrace.cluster.leadership import interpret
from headrace.core.ids import ResourceId, ResourceManagerId
from headrace.gateways.resource_manager import (
    JobMasterRegistered,
    JobMasterRegistrationResponse,
    ResourceManagerGateway,
    TaskExecutorRegistered,
    TaskExecutorRegistrationResponse,
)
from headrace.rpc.endpoint import RpcEndpoint
from headrace.rpc.heartbeat import HeartbeatLoss, HeartbeatReceiver
from headrace.rpc.registration import RetryingRegistration

R = TypeVar("R", JobMasterRegistrationResponse, TaskExecutorRegistrationResponse)


class ResourceManagerLink(Generic[R]):
    """One leader's; a new leader means a new object. All callbacks run on the main thread of `endpoint`.

    `on_registered(gateway, response)` comes after every registration, `on_lost(cause)` before the next attempt.
    """

    def __init__(
        self,
        endpoint: RpcEndpoint,
        address: str,
        resource_manager_id: ResourceManagerId,
        *,
        register: Callable[[ResourceManagerGateway], Awaitable[R]],
        on_registered: Callable[[ResourceManagerGateway, R], None],
        on_rejected: Callable[[str], None],
        on_lost: Callable[[str], None],
    ) -> None:
        self._resource_manager_id: Final = resource_manager_id
        self._on_registered: Final = on_registered
        self._on_lost: Final = on_lost
        self._heartbeats: Final = HeartbeatReceiver(endpoint, self._heartbeat_lost)
        self._registration: Final = RetryingRegistration(
            endpoint,
            target_address=address,
            gateway_type=ResourceManagerGateway,
            fencing_token=resource_manager_id,
            register=register,
            interpret=interpret,
            on_success=self._registered,
            on_rejected=on_rejected,
        )

    @property
    def gateway(self) -> ResourceManagerGateway | None:
        """The ResourceManager, while registered there."""
        return self._registration.gateway

    @property
    def target_address(self) -> str:
        """Return the address at which the ResourceManager is looked for."""
        return self._registration.target_address

    @property
    def last_failure(self) -> str:
        """Return the reason why the newest attempt to register failed; empty if none did."""
        return self._registration.last_failure

    def connect(self) -> None:
        """Begin to register; once."""
        self._registration.start()

    def is_leader(self, resource_manager_id: ResourceManagerId) -> bool:
        """Whether messages of this session may change anything here."""
        return resource_manager_id == self._resource_manager_id

    def heartbeat_received(self, resource_id: ResourceId) -> None:
        """The ResourceManager asked for a heartbeat."""
        self._heartbeats.request_received(resource_id)

    def lost(self, cause: str) -> None:
        """The ResourceManager ended the connection, or is gone: register again."""
        self._heartbeats.stop()
        self._on_lost(cause)
        self._registration.try_reconnect()

    def close(self) -> None:
        """Forget it. No callback comes any more."""
        self._heartbeats.stop()
        self._registration.close()

    def _registered(self, gateway: ResourceManagerGateway, response: R) -> None:
        assert isinstance(response, JobMasterRegistered | TaskExecutorRegistered)
        self._heartbeats.monitor_target(response.resource_manager_resource_id)
        self._on_registered(gateway, response)

    def _heartbeat_lost(self, resource_id: ResourceId, loss: HeartbeatLoss) -> None:
        self.lost(loss.text)
