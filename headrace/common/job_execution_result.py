"""PyFlink's `common.job_execution_result`: re-exports."""

from headrace.api.client.job_client import JobExecutionResult

__all__ = [
    "JobExecutionResult",
]
