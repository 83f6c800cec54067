"""Handler of a job's metrics over time."""

from headrace.rest.handlers.parameters import ClusterParameter, JobParameter
from headrace.rest.models.metrics_history import MetricsHistoryInfo


async def job_metrics_history(cluster: ClusterParameter, job: JobParameter) -> MetricsHistoryInfo:
    """Show how a job's vertices did over time."""
    return await cluster.metrics_history(job)
