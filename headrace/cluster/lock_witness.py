"""LockWitness: finds out whether the interpreter lock of a silent TaskManager is held, before it counts as lost."""

import logging
from typing import Final

from headrace.core.errors import HeadraceError
from headrace.core.ids import ResourceId
from headrace.gateways.lock_watcher import HeldLock, LockWatcherGateway
from headrace.rpc.endpoint import RpcEndpoint
from headrace.rpc.options import HEARTBEAT_INTERVAL, HEARTBEAT_TIMEOUT, HELD_LOCK_TIMEOUT
from headrace.rpc.proxies import with_timeout

_LOG = logging.getLogger(__name__)
_TIMEOUT_MS: Final = 1_000.0
_SILENT_INTERVALS: Final = 1.5
"""Number of heartbeat intervals without an answer after which the watcher of a TaskManager is queried."""


class LockWitness:
    """Lock witness of one endpoint that sends heartbeats to TaskManagers.

    Each answer contains the address of the TaskManager's lock watcher.
    """

    def __init__(self, endpoint: RpcEndpoint) -> None:
        self._endpoint: Final = endpoint
        self._timeout_ms: Final = endpoint.settings.duration_ms(HELD_LOCK_TIMEOUT)
        self._gateways: Final[dict[ResourceId, tuple[str, LockWatcherGateway | None]]] = {}
        self._logged: Final[set[ResourceId]] = set()
        self._silence_max_ms: Final = _SILENT_INTERVALS * endpoint.settings.duration_ms(
            HEARTBEAT_INTERVAL
        )
        self._held: Final[dict[ResourceId, HeldLock]] = {}
        # Time at which the watcher last reported that the lock was held, for less than the bound.
        self._excused_ns: Final[dict[ResourceId, int]] = {}
        self._grace_ns: Final = int(endpoint.settings.duration_ms(HEARTBEAT_TIMEOUT) * 1_000_000)
        self._asked: Final[set[ResourceId]] = set()

    def held(self, resource_id: ResourceId, silence_ms: float) -> HeldLock | None:
        """Return the watcher's last report.

        `silence_ms`: time since the TaskManager last answered; if it is too long, query again for the next call.
        """
        _, gateway = self._gateways.get(resource_id, ("", None))
        is_silent = silence_ms > self._silence_max_ms
        if is_silent and gateway is not None and resource_id not in self._asked:
            self._asked.add(resource_id)
            self._endpoint.spawn(
                self._look(resource_id), f"query the lock watcher of {resource_id}"
            )
        return self._held.get(resource_id)

    def heard(self, resource_id: ResourceId, watcher_address: str) -> None:
        """Record an answer of a TaskManager, whose lock is free again."""
        self._held.pop(resource_id, None)
        self._excused_ns.pop(resource_id, None)
        if resource_id in self._logged:
            self._logged.discard(resource_id)
            _LOG.info("the interpreter lock of TaskManager %s is free again", resource_id)
        address, _ = self._gateways.get(resource_id, ("", None))
        if address == watcher_address:
            return
        self._gateways[resource_id] = (watcher_address, None)
        if watcher_address:
            # Connect now, while it runs: an open connection needs no time later.
            self._endpoint.spawn(
                self._connect(resource_id, watcher_address), f"connect to {watcher_address}"
            )

    def forget(self, resource_id: ResourceId) -> None:
        """Forget a TaskManager that is lost or released."""
        self._gateways.pop(resource_id, None)
        self._logged.discard(resource_id)
        self._held.pop(resource_id, None)
        self._excused_ns.pop(resource_id, None)

    async def excuses(self, resource_id: ResourceId) -> bool:
        """Return whether the watcher reports the TaskManager as alive within the bound; log that once.

        If the lock was held at the last query, the TaskManager has `heartbeat.timeout` from then: it must first answer
        calls that waited for the lock, and a single unanswered query proves nothing.
        """
        held = await self._ask(resource_id)
        if held is None:
            excused_ns = self._excused_ns.get(resource_id)
            return excused_ns is not None and self._now_ns() - excused_ns < self._grace_ns
        where = held.function or "code that no stack shows"
        if held.held_ms >= self._timeout_ms:
            _LOG.warning(
                "TaskManager %s counts as lost: its interpreter lock has been held for %d s in %s, longer than "
                "'%s' allows",
                resource_id,
                held.held_ms // 1000,
                where,
                HELD_LOCK_TIMEOUT.key,
            )
            return False
        if resource_id not in self._logged:
            self._logged.add(resource_id)
            _LOG.warning(
                "TaskManager %s is alive but does not respond: its interpreter lock has been held for %d s in %s. "
                "It counts as lost after %d s ('%s'); C code should release the lock while it waits",
                resource_id,
                held.held_ms // 1000,
                where,
                self._timeout_ms // 1000,
                HELD_LOCK_TIMEOUT.key,
            )
        return True

    async def _look(self, resource_id: ResourceId) -> None:
        try:
            await self._ask(resource_id)
        finally:
            self._asked.discard(resource_id)

    async def _ask(self, resource_id: ResourceId) -> HeldLock | None:
        _, gateway = self._gateways.get(resource_id, ("", None))
        if gateway is None:
            return None
        try:
            held = await with_timeout(gateway, _TIMEOUT_MS).request_held_lock()
        except HeadraceError:
            held = None
        # It may have been lost, or have answered, during the query.
        if held is not None and resource_id in self._gateways:
            self._held[resource_id] = held
            if held.held_ms < self._timeout_ms:
                self._excused_ns[resource_id] = self._now_ns()
            else:
                self._excused_ns.pop(resource_id, None)
        else:
            self._held.pop(resource_id, None)
        return held

    def _now_ns(self) -> int:
        return self._endpoint.clock.monotonic_ns()

    async def _connect(self, resource_id: ResourceId, address: str) -> None:
        try:
            gateway = await self._endpoint.rpc_service.connect(address, LockWatcherGateway)
        except HeadraceError as error:
            _LOG.info("cannot reach the lock watcher of %s: %s", resource_id, error)
            return
        if self._gateways.get(resource_id, ("", None))[0] == address:
            self._gateways[resource_id] = (address, gateway)
            _LOG.debug("the interpreter lock of %s is watched at %s", resource_id, address)
