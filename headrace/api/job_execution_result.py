"""JobExecutionResult: what `execute` returns for a job that FINISHED."""

from collections.abc import Mapping
from typing import Any

from headrace.core.ids import JobId


class JobExecutionResult:
    """Id, net runtime and accumulators of a job that ended well."""

    def __init__(
        self, job_id: JobId, net_runtime_ms: int, accumulators: Mapping[str, Any] | None = None
    ) -> None:
        self._job_id = job_id
        self._net_runtime_ms = net_runtime_ms
        self._accumulators = dict(accumulators or {})

    def get_job_id(self) -> JobId:
        return self._job_id

    def get_net_runtime(self) -> int:
        """Milliseconds."""
        return self._net_runtime_ms

    def get_accumulator_result(self, accumulator_name: str) -> Any:
        """One accumulator, None where it is unknown."""
        return self._accumulators.get(accumulator_name)

    def get_all_accumulator_results(self) -> dict[str, Any]:
        return dict(self._accumulators)

    def __repr__(self) -> str:
        accumulators = f", accumulators={self._accumulators!r}" if self._accumulators else ""
        return f"JobExecutionResult(job {self._job_id}, {self._net_runtime_ms} ms{accumulators})"

    def __str__(self) -> str:
        return (
            "Program execution finished\n"
            f"Job with JobID {self._job_id} has finished.\n"
            f"Job Runtime: {self._net_runtime_ms} ms\n"
        )
