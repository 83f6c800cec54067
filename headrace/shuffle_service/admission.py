"""Pure decisions of a shuffle service: the memory that each producer may use, and the leases of jobs.

Source: Flink Remote Shuffle's write buffer pool and heartbeat timeouts.
"""

from collections.abc import Hashable, Iterable
from typing import Final, Generic, TypeVar

from headrace.core.ids import JobId

W = TypeVar("W", bound=Hashable)


GRANT_SHARE: Final = 4
"""A writer is given no more than this part of what is left, but the minimum: those to come shall have something too."""


class WriteBudget(Generic[W]):
    """Shares the memory for results that are being pushed. Nobody waits for it, in pages.

    A task pushes all its results at once: if one could hold memory while another waits for some, tasks would wait for
    each other for ever. So whoever comes is given at least `minimum`, and up to `maximum` while `shared` lasts; it
    keeps what it was given until it leaves. All together have at most `shared`, and `minimum` for each writer.
    """

    def __init__(self, shared: int, minimum: int, maximum: int) -> None:
        assert 0 < minimum <= maximum
        self.shared: Final = shared
        self.minimum: Final = minimum
        self.maximum: Final = maximum
        self._grants: dict[W, int] = {}
        self.granted = 0

    @property
    def writer_count(self) -> int:
        """Writers that were given memory and have not left."""
        return len(self._grants)

    def enter(self, writer: W) -> int:
        """Return how much a new writer may use."""
        assert writer not in self._grants
        left = self.shared - self.granted
        grant = min(self.maximum, max(self.minimum, left // GRANT_SHARE))
        self._grants[writer] = grant
        self.granted += grant
        return grant

    def leave(self, writer: W) -> None:
        """A writer is done or has given up. Idempotent."""
        self.granted -= self._grants.pop(writer, 0)


class JobLeases:
    """Leases of jobs: each expires `lease_ms` after its job was last heard of. Times: ms of a monotonic clock."""

    def __init__(self, lease_ms: float) -> None:
        self._lease_ms: Final = lease_ms
        self._heard_ms: dict[JobId, float] = {}

    @property
    def job_ids(self) -> frozenset[JobId]:
        """Jobs with a lease."""
        return frozenset(self._heard_ms)

    def heard(self, job_ids: Iterable[JobId], now_ms: float) -> None:
        """Renew the leases of these jobs."""
        for job_id in job_ids:
            self._heard_ms[job_id] = now_ms

    def forget(self, job_id: JobId) -> None:
        """Drop the lease of a job that has ended. Idempotent."""
        self._heard_ms.pop(job_id, None)

    def expire(self, now_ms: float) -> list[JobId]:
        """Drop and return the jobs whose lease has expired."""
        over = [job_id for job_id, at in self._heard_ms.items() if now_ms - at >= self._lease_ms]
        for job_id in over:
            del self._heard_ms[job_id]
        return over
