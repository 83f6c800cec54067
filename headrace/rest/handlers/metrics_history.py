"""Handler of a job's metrics over time."""

from headrace.rest.handlers.parameters import Cluster, Job
from headrace.rest.models.metrics_history import MetricsHistoryInfo


async def job_metrics_history(cluster: Cluster, job: Job) -> MetricsHistoryInfo:
    """Show how a job's vertices did over time."""
    return await cluster.metrics_history(job)
