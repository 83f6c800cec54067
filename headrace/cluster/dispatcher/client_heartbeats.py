"""ClientHeartbeats: cancels jobs that must end with their client once its heartbeats stop.

    submitted ──client.heartbeat.timeout, or the time in a heartbeat──► expired: the job is cancelled

Source: Flink Dispatcher.reportJobClientHeartbeat, JobGraph.initialClientHeartbeatTimeout.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from headrace.core.clock import Cancellable
from headrace.core.ids import JobId
from headrace.rpc.service import RpcService


@dataclass
class _Client:
    timeout_ms: int
    expiry: Cancellable


class ClientHeartbeats:
    """Follows clients on the loop of `rpc_service`. `on_expired` is called once for a job whose client has gone."""

    def __init__(self, rpc_service: RpcService, on_expired: Callable[[JobId], None]) -> None:
        self._rpc_service: Final = rpc_service
        self._on_expired: Final = on_expired
        self._clients: Final[dict[JobId, _Client]] = {}

    def follow(self, job_id: JobId, timeout_ms: int) -> None:
        """Expect heartbeats for a job from now on; no effect if `timeout_ms` is 0, as for most jobs."""
        if timeout_ms > 0:
            self._clients[job_id] = _Client(timeout_ms, self._expire_after(job_id, timeout_ms))

    def heard(self, job_id: JobId, expired_timestamp_ms: int) -> None:
        """Extend a job's time to one of the client's clock; no effect for jobs that are not followed.

        If the client's clock seems to differ from this one, the timeout counts from now.
        """
        client = self._clients.get(job_id)
        if client is None:
            return
        client.expiry.cancel()
        left_ms = expired_timestamp_ms - self._rpc_service.clock.now_ms()
        if not 0 < left_ms <= client.timeout_ms:
            left_ms = client.timeout_ms
        client.expiry = self._expire_after(job_id, left_ms)

    def forget(self, job_id: JobId) -> None:
        """Stop following a job that has ended."""
        client = self._clients.pop(job_id, None)
        if client is not None:
            client.expiry.cancel()

    def _expire_after(self, job_id: JobId, delay_ms: float) -> Cancellable:
        def expire() -> None:
            if self._clients.pop(job_id, None) is not None:
                self._on_expired(job_id)

        return self._rpc_service.schedule(delay_ms, expire)
