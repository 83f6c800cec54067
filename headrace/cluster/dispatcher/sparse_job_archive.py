"""Sparse archives of jobs without a JobMaster: not started yet, failed, or ended under an earlier leader. Pure.

Source: Flink ArchivedExecutionGraph.createSparseArchivedExecutionGraph.
"""

import msgspec

from headrace.cluster.dispatcher.job_archive import ArchivedJob
from headrace.cluster.job_master.checkpointing.protocol.coordinator_configuration import (
    describe_checkpointing,
)
from headrace.cluster.job_master.job_details import describe_configuration, stated_max_parallelism
from headrace.core.config import Settings
from headrace.core.errors import ConfigurationError
from headrace.core.lifecycle import JobStatus
from headrace.gateways.checkpoint_statistics import CheckpointStatistics
from headrace.gateways.dispatcher import JobOverview, JobResult
from headrace.gateways.ended_job import EndedJob
from headrace.gateways.job_master import JobDetails
from headrace.gateways.messages import ErrorInfo
from headrace.graph.job_graph import JobGraph
from headrace.graph.job_plan import JobPlan, job_type_of


def archive_of_submission(graph: JobGraph, cluster: Settings, submitted_ms: int) -> ArchivedJob:
    """Return the archive of a job that is INITIALIZING, to answer requests about it."""
    result = JobResult(graph.job_id, graph.name, JobStatus.INITIALIZING, 0, {})
    return _archive(graph, cluster, result, submitted_ms, submitted_ms)


def archive_lost_job(
    graph: JobGraph, cluster: Settings, failure: ErrorInfo, submitted_ms: int, now_ms: int
) -> ArchivedJob:
    """Return the archive of a FAILED job, without vertices because the state of its tasks is unknown."""
    result = JobResult(
        graph.job_id, graph.name, JobStatus.FAILED, now_ms - submitted_ms, {}, failure
    )
    return archive_of_result(graph, cluster, result, submitted_ms, now_ms)


def archive_of_result(
    graph: JobGraph, cluster: Settings, result: JobResult, submitted_ms: int, now_ms: int
) -> ArchivedJob:
    """Return the archive of a job that ended at `now_ms`, without vertices. Invalid settings are left out."""
    try:
        return _archive(graph, cluster, result, submitted_ms, now_ms)
    except ConfigurationError:
        bare = msgspec.structs.replace(graph, settings={})
        return _archive(bare, cluster, result, submitted_ms, now_ms)


def _archive(
    graph: JobGraph, cluster: Settings, result: JobResult, submitted_ms: int, now_ms: int
) -> ArchivedJob:
    job_id, name, status, failure = graph.job_id, graph.name, result.status, result.failure
    times = {JobStatus.INITIALIZING.name: submitted_ms, status.name: now_ms}
    max_parallelism = stated_max_parallelism(graph)
    checkpointing = describe_checkpointing(cluster.with_values(graph.settings))
    job = EndedJob(
        JobDetails(
            job_id,
            name,
            status,
            times,
            (),
            failure,
            max_parallelism=max_parallelism,
            job_type=job_type_of(graph),
        ),
        result,
        JobOverview(
            job_id,
            name,
            status,
            submitted_ms,
            now_ms if status.is_globally_terminal_state() else -1,
            now_ms,
            job_type_of(graph),
            max_parallelism=max_parallelism,
        ),
        JobPlan.of(graph),
        describe_configuration(graph, cluster),
        CheckpointStatistics(is_enabled=checkpointing.is_enabled),
        checkpointing,
    )
    return ArchivedJob(job, {})
