"""WorkerFailures: tracks the last failure of a worker, and pauses requests after too many failed starts. Pure.

Times are monotonic milliseconds. Source: Flink ActiveResourceManager (startWorkerFailureRater).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from headrace.core.ids import JobId, ResourceId

_WINDOW_MS: Final = 60_000.0
_NEVER_MS: Final = float("-inf")


@dataclass
class WorkerFailures:
    """Failures of workers; after more than `starts_max` failed starts in a minute, requests pause for `pause_ms`."""

    starts_max: float
    pause_ms: float
    last: str = ""
    """Last failure of any worker; empty before the first."""
    _last_ms: float = _NEVER_MS
    _last_jobs: frozenset[JobId] = frozenset()
    _start_times_ms: list[float] = field(default_factory=list[float])
    _paused_until_ms: float = _NEVER_MS

    def add(
        self,
        worker_id: ResourceId,
        diagnostics: str,
        monotonic_ms: float,
        job_ids: frozenset[JobId],
        *,
        is_start: bool,
    ) -> None:
        """Record the failure of a worker, which had slots of these jobs; `is_start`: it had not registered."""
        self.last = f"{worker_id}: {diagnostics}"
        self._last_ms, self._last_jobs = monotonic_ms, job_ids
        if is_start:
            self._start_times_ms = [*self._recent_ms(monotonic_ms), monotonic_ms]
            if len(self._start_times_ms) > self.starts_max:
                self._paused_until_ms = monotonic_ms + self.pause_ms

    def holds_back(self, monotonic_ms: float) -> bool:
        """Return whether no worker may be requested now."""
        return monotonic_ms < self._paused_until_ms

    @property
    def pause_end_ms(self) -> float | None:
        """Time at which requests resume; None if they are not paused."""
        return None if self._paused_until_ms == _NEVER_MS else self._paused_until_ms

    def time_passed(self, monotonic_ms: float) -> None:
        """End the pause when its time is over."""
        if not self.holds_back(monotonic_ms):
            self._paused_until_ms = _NEVER_MS

    def starts_per_second(self, monotonic_ms: float) -> float:
        """Return the rate at which workers failed before they registered, over the last minute."""
        return len(self._recent_ms(monotonic_ms)) * 1000 / _WINDOW_MS

    def last_concerns(self, waiting: Mapping[JobId, float]) -> bool:
        """Return whether the last failure concerns jobs that lack slots since these times.

        It does if it came later, or the worker was used by one of them.
        """
        return any(
            job_id in self._last_jobs or since_ms <= self._last_ms
            for job_id, since_ms in waiting.items()
        )

    def _recent_ms(self, monotonic_ms: float) -> list[float]:
        return [at for at in self._start_times_ms if monotonic_ms - at < _WINDOW_MS]
