"""Blocklist: hosts that lose TaskManagers repeatedly, and whose slots are avoided for a while. Pure.

Slots of a blocked host are used only if no other TaskManager has any: a cluster whose hosts are all blocked goes on. If
TaskManagers start on demand, jobs wait a while for others (BlockedHostPatience).
Source: Flink BlocklistTracker, MARK_BLOCKED; there a caller blocks a host, here losses do.
"""

from collections import deque
from collections.abc import Container
from dataclasses import dataclass, field
from typing import Final

from headrace.cluster.resource_manager.options import (
    BLOCKLIST_DURATION,
    BLOCKLIST_LOSSES,
    BLOCKLIST_WINDOW,
)
from headrace.core.config import Settings
from headrace.core.ids import JobId, ResourceId

BLOCKED_HOST_PATIENCE_MS: Final = 20_000.0
"""Time in ms for which a job leaves free slots of blocked hosts unused while TaskManagers may start elsewhere."""
_PASSED_OVER_LEAST: Final = 3
"""Number of TaskManagers on blocked hosts that even a job with few slots may pass over."""


class Blocklist:
    """Counts losses by host, for at most `_HOSTS_MAX` hosts. Times are those of one clock, in ms."""

    _HOSTS_MAX: Final = 10_000

    def __init__(self, settings: Settings) -> None:
        self._losses_max: Final = settings.get_option(BLOCKLIST_LOSSES)
        self._window_ms: Final = settings.duration_ms(BLOCKLIST_WINDOW)
        self._duration_ms: Final = settings.duration_ms(BLOCKLIST_DURATION)
        self._losses: dict[str, deque[float]] = {}
        self._blocked_until_ms: dict[str, float] = {}

    def task_manager_lost(self, host: str, now_ms: float) -> str:
        """Count the loss of a TaskManager; return a sentence if that blocks its host, otherwise an empty text."""
        if self._losses_max == 0 or self.is_blocked(host, now_ms):
            return ""
        losses = self._losses.pop(host, deque[float]())
        losses.append(now_ms)
        while losses[0] <= now_ms - self._window_ms:
            losses.popleft()
        if len(losses) < self._losses_max:
            self._losses[host] = losses
            while len(self._losses) > self._HOSTS_MAX:
                del self._losses[next(iter(self._losses))]
            return ""
        self._blocked_until_ms[host] = now_ms + self._duration_ms
        return (
            f"host {host} has lost {len(losses)} TaskManagers within {self._window_ms / 1000:g} s: for "
            f"{self._duration_ms / 1000:g} s its slots are used only if no other host has any "
            f"({BLOCKLIST_LOSSES.key})"
        )

    def is_blocked(self, host: str, now_ms: float) -> bool:
        """Return whether the host is blocked, and forget a host whose time is over."""
        until_ms = self._blocked_until_ms.get(host)
        if until_ms is None:
            return False
        if now_ms >= until_ms:
            del self._blocked_until_ms[host]
            return False
        return True


@dataclass
class _Wait:
    since_ms: float
    passed_over: set[ResourceId] = field(default_factory=set[ResourceId])
    is_over: bool = False


class BlockedHostPatience:
    """Decides which jobs pass over free slots of blocked hosts, because the next TaskManager may start elsewhere. Pure.

    A job passes over as many TaskManagers as it needs slots, at least three, for `BLOCKED_HOST_PATIENCE_MS`; after that
    it takes any free slots, until it has had all its slots. Times are monotonic milliseconds.
    """

    def __init__(self) -> None:
        self._waits: dict[JobId, _Wait] = {}

    def is_waiting(self, job_id: JobId) -> bool:
        """Return whether a job has passed over a TaskManager, and still waits."""
        return job_id in self._waits and not self._waits[job_id].is_over

    def passes_over(
        self,
        job_id: JobId,
        worker_id: ResourceId,
        slot_count: int,
        now_ms: float,
        *,
        may_another_come: bool,
    ) -> bool:
        """Return whether a job that needs `slot_count` slots passes over a TaskManager on a blocked host."""
        if not may_another_come and job_id not in self._waits:
            return False
        wait = self._waits.setdefault(job_id, _Wait(now_ms))
        passed_over = wait.passed_over | {worker_id}
        wait.is_over |= (
            not may_another_come
            or now_ms - wait.since_ms >= BLOCKED_HOST_PATIENCE_MS
            or len(passed_over) > max(slot_count, _PASSED_OVER_LEAST)
        )
        wait.passed_over = passed_over
        return not wait.is_over

    def forget_others(self, job_ids: Container[JobId]) -> None:
        """Forget all jobs except these, which lack slots."""
        self._waits = {job: wait for job, wait in self._waits.items() if job in job_ids}
