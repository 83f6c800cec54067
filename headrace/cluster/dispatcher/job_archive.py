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
    "Bytes that ended jobs may take in the dispatcher, with their records that nobody has fetched; the oldest are "
    "forgotten first, the last one never.",
)
ARCHIVE_EXPIRATION: Final = ConfigOption(
    "jobstore.expiration-time",
    timedelta,
    timedelta(hours=1),
    "Time for which the dispatcher remembers a job that has ended.",
)


@dataclass(frozen=True)
class ArchiveLimits:
    """The three bounds of an archive."""

    capacity: int
    size_bytes: int
    expiration_ms: float

    @classmethod
    def from_settings(cls, settings: Settings) -> Self:
        """Read the `jobstore.*` options."""
        return cls(
            settings.get_option(ARCHIVE_CAPACITY),
            settings.get_option(ARCHIVE_SIZE),
            settings.duration_ms(ARCHIVE_EXPIRATION),
        )


@dataclass(frozen=True)
class ArchivedJob:
    """One job that has ended. `collected` are its collect sinks; what the client has not fetched yet waits there.

    `job` answers what its JobMaster would have answered. `operators`: the last metrics of its coordinators.
    """

    job: EndedJob
    collected: Mapping[OperatorId, CollectCoordinator]
    operators: tuple[OperatorMetrics, ...] = ()

    def fetch(self, operator_id: OperatorId, offset: int, max_piece_count: int) -> CollectedResults:
        """Collected records from `offset` on; KeyError for an operator that collects nothing."""
        return self.collected[operator_id].fetch(offset, max_piece_count)


@dataclass(frozen=True)
class _Entry:
    archived: ArchivedJob
    expires_ms: float
    # What is told about the job never changes; what waits for the client shrinks as it is fetched.
    described_bytes: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "described_bytes", len(msgspec.msgpack.encode(self.archived.job)))

    @property
    def size_bytes(self) -> int:
        return self.described_bytes + sum(
            each.size_bytes for each in self.archived.collected.values()
        )


class JobArchive:
    """Jobs that have ended, by id, in the order of their ends."""

    def __init__(self, limits: ArchiveLimits, clock: Clock) -> None:
        assert limits.capacity >= 1
        self._limits: Final = limits
        self._clock: Final = clock
        self._entries: dict[JobId, _Entry] = {}

    @property
    def next_expiry_ms(self) -> float | None:
        """Return the milliseconds until a job is forgotten for its age; None where there is no job."""
        for entry in self._entries.values():
            return max(0.0, entry.expires_ms - self._clock.monotonic_ms())
        return None

    def add(self, archived: ArchivedJob) -> None:
        """Remember a job; beyond the bounds the oldest go, with what nobody fetched from them."""
        self.forget_expired()
        expires_ms = self._clock.monotonic_ms() + self._limits.expiration_ms
        self._entries[archived.job.details.job_id] = _Entry(archived, expires_ms)
        size_bytes = sum(entry.size_bytes for entry in self._entries.values())
        while len(self._entries) > 1 and (
            len(self._entries) > self._limits.capacity or size_bytes > self._limits.size_bytes
        ):
            size_bytes -= self._forget_oldest().size_bytes

    def forget_expired(self) -> None:
        """Let go of jobs whose time is over."""
        monotonic_ms = self._clock.monotonic_ms()
        while self._entries and next(iter(self._entries.values())).expires_ms <= monotonic_ms:
            self._forget_oldest()

    def find(self, job_id: JobId) -> ArchivedJob | None:
        """The job, or None where it never ended here or was forgotten."""
        entry = self._entries.get(job_id)
        return None if entry is None else entry.archived

    def jobs(self) -> tuple[ArchivedJob, ...]:
        """All jobs that are remembered."""
        return tuple(entry.archived for entry in self._entries.values())

    def _forget_oldest(self) -> _Entry:
        return self._entries.pop(next(iter(self._entries)))
