"""Configuration of a job for people: its settings over the cluster's, with secrets masked. Pure."""

from headrace.cluster.job_master.failover.restart_strategies import describe_restart_strategy
from headrace.core.config import Settings
from headrace.core.redaction import shown_settings
from headrace.gateways.job_master import JobConfiguration
from headrace.graph.job_graph import JobGraph
from headrace.graph.pipeline_options import OBJECT_REUSE, PARALLELISM, global_job_parameters


def describe_configuration(graph: JobGraph, cluster: Settings) -> JobConfiguration:
    """Return the configuration of a job on a cluster with these settings."""
    settings = cluster.with_values(graph.settings)
    shown = shown_settings(settings)
    parallelism = settings.get_option(PARALLELISM)
    if parallelism < 1:
        parallelism = max((vertex.parallelism for vertex in graph.vertices), default=1)
    return JobConfiguration(
        shown,
        describe_restart_strategy(Settings(graph.settings)),
        parallelism,
        settings.get_option(OBJECT_REUSE),
        global_job_parameters(shown),
    )
