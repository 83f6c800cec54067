"""PyFlink's `common.job_client`: re-exports."""

from headrace.api.client.job_client import JobClient

__all__ = [
    "JobClient",
]
