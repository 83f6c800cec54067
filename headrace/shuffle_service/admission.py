"""Who may push now, and which jobs are still alive: the pure decisions of a shuffle service.

Source: Flink Remote Shuffle's write buffer pool and heartbeat timeouts.
"""

from collections import deque
from collections.abc import Hashable, Iterable
from typing import Final, Generic, TypeVar

from headrace.core.ids import JobId

W = TypeVar("W", bound=Hashable)


class WriterAdmission(Generic[W]):
    """At most `capacity` writers at a time; the others wait in the order in which they came."""

    def __init__(self, capacity: int) -> None:
        assert capacity > 0
        self.capacity: Final = capacity
        self._active: set[W] = set()
        self._waiting: deque[W] = deque()

    @property
    def active_count(self) -> int:
        """Writers that were admitted and have not left."""
        return len(self._active)

    @property
    def waiting_count(self) -> int:
        """Writers that wait."""
        return len(self._waiting)

    def enter(self, writer: W) -> bool:
        """Return whether a new writer may begin; otherwise it is named by a later `leave`."""
        assert writer not in self._active and writer not in self._waiting
        if len(self._active) < self.capacity:
            self._active.add(writer)
            return True
        self._waiting.append(writer)
        return False

    def leave(self, writer: W) -> list[W]:
        """A writer is done or has given up; return those that may begin now. Idempotent."""
        if writer in self._waiting:
            self._waiting.remove(writer)
        self._active.discard(writer)
        admitted: list[W] = []
        while self._waiting and len(self._active) < self.capacity:
            following = self._waiting.popleft()
            self._active.add(following)
            admitted.append(following)
        return admitted


class JobLeases:
    """When each job was heard of last. Times are milliseconds of a monotonic clock."""

    def __init__(self, lease_ms: float) -> None:
        self._lease_ms: Final = lease_ms
        self._heard_ms: dict[JobId, float] = {}

    @property
    def job_ids(self) -> frozenset[JobId]:
        """Jobs with a lease."""
        return frozenset(self._heard_ms)

    def heard(self, job_ids: Iterable[JobId], now_ms: float) -> None:
        """These jobs live."""
        for job_id in job_ids:
            self._heard_ms[job_id] = now_ms

    def forget(self, job_id: JobId) -> None:
        """The job is over. Idempotent."""
        self._heard_ms.pop(job_id, None)

    def expire(self, now_ms: float) -> list[JobId]:
        """Forget and return the jobs that were not heard of for a lease."""
        over = [job_id for job_id, at in self._heard_ms.items() if now_ms - at >= self._lease_ms]
        for job_id in over:
            del self._heard_ms[job_id]
        return over
