"""JobArchive: keeps the results of ended jobs, within bounds. Source: Flink MemoryExecutionGraphInfoStore."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final, Self

import msgspec

from headrace.cluster.job_master.coordinators.collect_coordinator import CollectCoordinator
from headrace.core.clock import Clock
from headrace.core.config import ConfigOption, Settings, SizeBytes
from headrace.core.ids import JobId, OperatorId
from headrace.gateways.ended_job import EndedJob
from headrace.gateways.job_master import CollectedResults
from headrace.gateways.job_metrics import OperatorMetrics

ARCHIVE_CAPACITY: Final = ConfigOption(
    "jobstore.max-capacity",
    int,
    1000,
    "Number of ended jobs that the dispatcher remembers; the oldest are forgotten first.",
)
ARCHIVE_SIZE: Final = ConfigOption(
    "jobstore.cache-size",
    SizeBytes,
    SizeBytes(52428800),
    "Memory that ended jobs may use in the dispatcher, including records not fetched yet; the oldest are "
    "forgotten first, but never the newest.",
)
ARCHIVE_EXPIRATION: Final = ConfigOption(
    "jobstore.expiration-time",
    timedelta,
    timedelta(hours=1),
    "Time for which the dispatcher remembers a job that has ended.",
)


@dataclass(frozen=True)
class ArchiveLimits:
    """Limits of an archive: number, size and age of its jobs."""

    capacity: int
    size_bytes: int
    expiration_ms: float

    @classmethod
    def from_settings(cls, settings: Settings) -> Self:
        """Make the limits from the `jobstore.*` options."""
        return cls(
            settings.get_option(ARCHIVE_CAPACITY),
            settings.get_option(ARCHIVE_SIZE),
            settings.duration_ms(ARCHIVE_EXPIRATION),
        )


@dataclass(frozen=True)
class ArchivedJob:
    """An ended job. `collected` are its collect sinks, with the records that the client has not fetched yet.

    `job` answers requests in place of the JobMaster. `operators`: the last metrics of its coordinators.
    """

    job: EndedJob
    collected: Mapping[OperatorId, CollectCoordinator]
    operators: tuple[OperatorMetrics, ...] = ()

    def fetch(self, operator_id: OperatorId, offset: int, max_piece_count: int) -> CollectedResults:
        """Return collected records from `offset` on. KeyError if the operator collects nothing."""
        return self.collected[operator_id].fetch(offset, max_piece_count)


@dataclass(frozen=True)
class _Entry:
    archived: ArchivedJob
    expires_ms: float
    # The job's details never change; the collected records shrink as they are fetched.
    described_bytes: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "described_bytes", len(msgspec.msgpack.encode(self.archived.job)))

    @property
    def size_bytes(self) -> int:
        return self.described_bytes + sum(
            each.size_bytes for each in self.archived.collected.values()
        )


class JobArchive:
    """Ended jobs by id, in the order of their ends."""

    def __init__(self, limits: ArchiveLimits, clock: Clock) -> None:
        assert limits.capacity >= 1
        self._limits: Final = limits
        self._clock: Final = clock
        self._entries: dict[JobId, _Entry] = {}

    @property
    def next_expiry_ms(self) -> float | None:
        """Return the ms until a job expires; None if there is none."""
        for entry in self._entries.values():
            return max(0.0, entry.expires_ms - self._clock.monotonic_ms())
        return None

    def add(self, archived: ArchivedJob) -> None:
        """Remember a job; beyond the limits the oldest are dropped, with their unfetched records."""
        self.forget_expired()
        expires_ms = self._clock.monotonic_ms() + self._limits.expiration_ms
        self._entries[archived.job.details.job_id] = _Entry(archived, expires_ms)
        size_bytes = sum(entry.size_bytes for entry in self._entries.values())
        while len(self._entries) > 1 and (
            len(self._entries) > self._limits.capacity or size_bytes > self._limits.size_bytes
        ):
            size_bytes -= self._forget_oldest().size_bytes

    def forget_expired(self) -> None:
        """Forget jobs that have expired."""
        monotonic_ms = self._clock.monotonic_ms()
        while self._entries and next(iter(self._entries.values())).expires_ms <= monotonic_ms:
            self._forget_oldest()

    def find(self, job_id: JobId) -> ArchivedJob | None:
        """Return the job, or None if it never ended here or was forgotten."""
        entry = self._entries.get(job_id)
        return None if entry is None else entry.archived

    def jobs(self) -> tuple[ArchivedJob, ...]:
        """Return all remembered jobs."""
        return tuple(entry.archived for entry in self._entries.values())

    def _forget_oldest(self) -> _Entry:
        return self._entries.pop(next(iter(self._entries)))
