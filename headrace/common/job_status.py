"""PyFlink's `common.job_status`: re-exports."""

from headrace.core.lifecycle import JobStatus

__all__ = [
    "JobStatus",
]
