"""JobArchive: what is left of jobs that have ended, within a bound. Source: Flink ExecutionGraphInfoStore."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from headrace.cluster.job_master.collect_coordinator import CollectCoordinator
from headrace.core.config import ConfigOption
from headrace.core.ids import JobId, OperatorId
from headrace.gateways.dispatcher import JobResult
from headrace.gateways.job_master import CollectedResults, JobDetails

ARCHIVE_CAPACITY: Final = ConfigOption(
    "jobstore.max-capacity",
    int,
    1000,
    "How many jobs that have ended the dispatcher remembers; the oldest are forgotten first.",
)


@dataclass(frozen=True)
class ArchivedJob:
    """One job that has ended. `collected` are its collect sinks; what the client has not fetched yet waits there."""

    details: JobDetails
    result: JobResult
    collected: Mapping[OperatorId, CollectCoordinator]

    def fetch(self, operator_id: OperatorId, offset: int, max_batch_count: int) -> CollectedResults:
        """Collected records from `offset` on; KeyError for an operator that collects nothing."""
        return self.collected[operator_id].fetch(offset, max_batch_count)


class JobArchive:
    """Jobs that have ended, by id, in the order of their ends."""

    def __init__(self, capacity: int) -> None:
        assert capacity >= 1
        self._capacity = capacity
        self._jobs: dict[JobId, ArchivedJob] = {}

    def add(self, job: ArchivedJob) -> None:
        """Remember a job; beyond the capacity the oldest goes, with what nobody fetched from it."""
        self._jobs[job.details.job_id] = job
        while len(self._jobs) > self._capacity:
            del self._jobs[next(iter(self._jobs))]

    def find(self, job_id: JobId) -> ArchivedJob | None:
        """The job, or None where it never ended here or was forgotten."""
        return self._jobs.get(job_id)

    def jobs(self) -> tuple[ArchivedJob, ...]:
        """All of them."""
        return tuple(self._jobs.values())
