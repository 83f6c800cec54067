"""SubtaskReportGateway: reports of a BATCH job's subtasks to the driver, whose Spark runs them."""

from typing import Protocol

import msgspec

from headrace.core.ids import JobId
from headrace.core.lifecycle import ExecutionState


class SubtaskReport(msgspec.Struct, frozen=True, array_like=True):
    """State and counts of one attempt of a subtask.

    The last report has the `metrics` of its operators and of user functions; `counters` are the names of the latter.
    Times are epoch milliseconds; bytes are those of the Arrow batches that Spark passes on.
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
    """The endpoint in the driver that receives the reports of all its jobs in BATCH mode."""

    def report_subtask(self, job_id: JobId, report: SubtaskReport) -> None:
        """Report that a subtask runs, or has failed. No effect if the job has ended."""
        ...
