"""PyFlink's `common.job_id`: re-exports."""

from headrace.core.ids import JobId as JobID

__all__ = [
    "JobID",
]
