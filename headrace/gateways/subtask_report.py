"""SubtaskReportGateway: what subtasks of a job in BATCH mode tell the driver, whose Spark runs them."""

from typing import Protocol

import msgspec

from headrace.core.ids import JobId
from headrace.core.lifecycle import ExecutionState


class SubtaskReport(msgspec.Struct, frozen=True, array_like=True):
    """State and counts of one attempt of a subtask.

    The last one has the `metrics` of its operators and of the user's functions, `counters` of which are the latter's.
    Times are epoch milliseconds; bytes are those of Arrow batches, as Spark hands them over.
    """

    vertex_id: str
    subtask_index: int
    attempt_number: int
    state: ExecutionState
    host: str
    started_ms: int
    reported_ms: int
    records_in: int = 0
    records_out: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    metrics: dict[str, float] = {}
    counters: tuple[str, ...] = ()


class SubtaskReportGateway(Protocol):
    """The endpoint in the driver that takes the reports of all its jobs in BATCH mode."""

    def report_subtask(self, job_id: JobId, report: SubtaskReport) -> None:
        """A subtask runs, or has failed. Without effect where the job has ended."""
        ...
