"""Remains of jobs that have ended, for tests of who remembers them."""

from headrace.cluster.dispatcher.job_archive import ArchivedJob
from headrace.cluster.job_master.coordinators.collect_coordinator import CollectCoordinator
from headrace.cluster.job_master.coordinators.operator_coordinator import CoordinatorContext
from headrace.core.config import Settings
from headrace.core.ids import JobId, OperatorId
from headrace.core.lifecycle import JobStatus
from headrace.gateways.dispatcher import JobResult
from headrace.gateways.job_master import JobDetails
from tests.unit.cluster.cluster_samples import attempt

OPERATOR = OperatorId(b"o" * 16)


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


def ended(
    job_id: JobId,
    results: CollectCoordinator | None = None,
    status: JobStatus = JobStatus.FINISHED,
) -> ArchivedJob:
    """A job that ended as `status` says, with what OPERATOR collected."""
    details = JobDetails(job_id, "job", status, {}, ())
    result = JobResult(job_id, "job", status, 1, {})
    return ArchivedJob(details, result, {} if results is None else {OPERATOR: results})
