"""PyFlink's `common.job_execution_result`: re-exports."""

from headrace.api.job_execution_result import JobExecutionResult

__all__ = [
    "JobExecutionResult",
]
