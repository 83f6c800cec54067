"""Remains of jobs that have ended, for tests of who remembers them."""

from headrace.cluster.dispatcher.job_archive import ArchivedJob
from headrace.cluster.job_master.checkpointing.checkpoint_history import TrackedCheckpoint
from headrace.cluster.job_master.checkpointing.protocol.checkpoint_plan import CheckpointPlan
from headrace.cluster.job_master.checkpointing.protocol.coordinator_configuration import (
    describe_checkpointing,
)
from headrace.cluster.job_master.coordinators.collect_coordinator import CollectCoordinator
from headrace.cluster.job_master.coordinators.operator_coordinator import CoordinatorContext
from headrace.cluster.job_master.job_details import describe_configuration
from headrace.core.barriers import SnapshotKind
from headrace.core.config import Settings
from headrace.core.ids import ExecutionVertexId, JobId, JobVertexId, OperatorId
from headrace.core.lifecycle import JobStatus
from headrace.gateways.checkpoint_statistics import CheckpointDetails, CheckpointStatistics
from headrace.gateways.dispatcher import JobOverview, JobResult
from headrace.gateways.ended_job import EndedJob
from headrace.gateways.job_master import JobDetails
from headrace.graph.job_plan import JobPlan
from tests.unit.cluster.cluster_samples import attempt, job_graph, vertex

OPERATOR = OperatorId(b"o" * 16)
VERTEX = JobVertexId(b"v" * 16)


def collected(job_id: JobId, size_bytes: int = 0) -> CollectCoordinator:
    """What OPERATOR collected: nothing, or one piece of so many bytes that nobody has fetched."""
    context = CoordinatorContext(
        job_id,
        OPERATOR,
        "Collect",
        1,
        Settings({}),
        send_event=lambda *_: None,
        run_async=lambda _: None,
        fail_job=lambda _: None,
    )
    coordinator = CollectCoordinator(context, b"")
    if size_bytes:
        coordinator.handle_event(attempt(0), bytes(size_bytes))
    return coordinator


def checkpoint_details(checkpoint_id: int, subtask_count: int = 1) -> CheckpointDetails:
    """A completed checkpoint of one vertex."""
    subtasks = tuple(ExecutionVertexId(VERTEX, index) for index in range(subtask_count))
    plan = CheckpointPlan((), (), subtasks)
    tracked = TrackedCheckpoint(checkpoint_id, SnapshotKind.CHECKPOINT, 1_000, 0, plan=plan)
    tracked.completed(f"file:/chk-{checkpoint_id}", 5, 10)
    return tracked.details


def ended(
    job_id: JobId,
    results: CollectCoordinator | None = None,
    status: JobStatus = JobStatus.FINISHED,
    *,
    checkpoints: tuple[CheckpointDetails, ...] = (),
) -> ArchivedJob:
    """A job that ended as `status` says, with what OPERATOR collected and what is known of its checkpoints."""
    graph = job_graph((vertex(1, 2),))
    job = EndedJob(
        JobDetails(job_id, "job", status, {}, ()),
        JobResult(job_id, "job", status, 1, {"map.late": 3.0}),
        JobOverview(job_id, "job", status, 1, 2, 2, tasks={status.name: 2}),
        JobPlan.of(graph),
        describe_configuration(graph, Settings()),
        CheckpointStatistics(history=tuple(each.checkpoint for each in checkpoints)),
        describe_checkpointing(Settings()),
        checkpoints,
    )
    return ArchivedJob(job, {} if results is None else {OPERATOR: results})
