"""Handlers of the state browser: operators with state, their sizes, rows of a state, and edits into a new savepoint.

State is read on request; answers are not cached, and nothing polls.
"""

import asyncio
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from fastapi import Path, Query

from headrace.checkpoint.metadata import CompletedCheckpoint
from headrace.checkpoint.options import SAVEPOINT_DIRECTORY
from headrace.core.threads import run_in_thread
from headrace.gateways.errors import JobAlreadyEndedError
from headrace.gateways.messages import OperatorDescription
from headrace.rest.cluster_view import ClusterView
from headrace.rest.handlers.checkpoints import with_scheme
from headrace.rest.handlers.parameters import (
    ClusterParameter,
    JobParameter,
    ReadsOfState,
    RunningOperations,
    TriggerParameter,
)
from headrace.rest.handlers.savepoints import (
    begin_operation,
    failure_cause_of,
    find_operation,
    progress_of,
)
from headrace.rest.models import state as models
from headrace.rest.models.cluster import TriggerAnswer
from headrace.rest.state.job_snapshots import JobSnapshot, JobSnapshots
from headrace.rest.state.live_state_view import LiveStateView, RowsRequest
from headrace.rest.state.shown_rows import SHOWN_ROWS_MAX
from headrace.state_processor.json_values import keys_in_text

if TYPE_CHECKING:
    from headrace.rest.state.stored_state_view import StoredStateView

_EDIT: Final = "state edit"
_THREAD: Final = "headrace-rest-state"
_ROWS_BY_DEFAULT: Final = 100
_CHECKPOINT_ID_MAX: Final = 2**63 - 1

OperatorName = Annotated[str, Path(alias="operatorid", max_length=500)]
"""The operator that the path names by uid, id or name."""
SnapshotId = Annotated[int | None, Query(alias="snapshot", ge=0, le=_CHECKPOINT_ID_MAX)]
"""The id of the requested snapshot; None for the running job."""
TableName = Literal["keyed", "timers", "windows", "operator_state", "source_splits", "items"]


async def job_state(
    cluster: ClusterParameter,
    reads: ReadsOfState,
    job: JobParameter,
    snapshot: SnapshotId = None,
) -> models.StateInfo:
    """List the operators of a job, or of one of its snapshots, and the existing snapshots."""
    known = JobSnapshots(cluster, job)
    listed = await known.all()
    settings = await known.settings()
    operators: list[models.StateOperator] = []
    problem: str | None = None
    if snapshot is None:
        try:
            operators = [_operator(one) for one in await LiveStateView(cluster, job).operators()]
        except JobAlreadyEndedError as error:
            problem = str(error)
    else:
        view = await _stored(cluster, known, snapshot)
        async with reads.answering():
            operators = await run_in_thread(_THREAD, view.operators)
    return models.StateInfo(
        jid=job.hex(),
        snapshot=snapshot,
        backend=(await cluster.checkpoint_configuration(job)).state_backend,
        savepoint_directory=settings.get_option(SAVEPOINT_DIRECTORY) or None,
        operators=operators,
        problem=problem,
        snapshots=[_snapshot(one) for one in listed],
    )


async def operator_state(
    cluster: ClusterParameter,
    reads: ReadsOfState,
    job: JobParameter,
    operator: OperatorName,
    snapshot: SnapshotId = None,
) -> models.OperatorState:
    """Show the figures of an operator's states: rows, bytes, skew, largest keys and key groups, timers."""
    async with reads.answering():
        if snapshot is None:
            return await LiveStateView(cluster, job).figures(operator)
        view = await _stored(cluster, JobSnapshots(cluster, job), snapshot)
        return await run_in_thread(_THREAD, lambda: view.figures(operator))


async def state_rows(
    cluster: ClusterParameter,
    reads: ReadsOfState,
    job: JobParameter,
    operator: OperatorName,
    state: Annotated[str, Query(max_length=500)],
    table: TableName = "keyed",
    keys: Annotated[str | None, Query(max_length=10_000)] = None,
    subtask: Annotated[int | None, Query(ge=0, le=1_000_000)] = None,
    limit: Annotated[int, Query(ge=1, le=SHOWN_ROWS_MAX)] = _ROWS_BY_DEFAULT,
    expired: bool = False,
    snapshot: SnapshotId = None,
) -> models.StateRows:
    """Show rows of one state. `keys`: a JSON list of the only keys to show."""
    async with reads.answering():
        wanted = None if keys is None else keys_in_text(keys)
        request = RowsRequest(table, state, wanted, subtask, limit, includes_expired=expired)
        if snapshot is None:
            return await LiveStateView(cluster, job).rows(operator, request)
        view = await _stored(cluster, JobSnapshots(cluster, job), snapshot)
        return await run_in_thread(_THREAD, lambda: view.rows(operator, request))


async def edit_state(
    cluster: ClusterParameter,
    reads: ReadsOfState,
    operations: RunningOperations,
    job: JobParameter,
    body: models.StateEditRequest,
) -> TriggerAnswer:
    """Start to write a new savepoint from a snapshot of the job with single keys changed. The job is not affected."""
    # Imported late: it loads the code for state files, which most clusters never need.
    from headrace.rest.state.state_edits import StateEdits

    known = JobSnapshots(cluster, job)
    parent = await known.find(body.snapshot)
    edits = StateEdits(job, parent, await known.settings(), body.edits)

    async def write() -> CompletedCheckpoint:
        async with reads.turn():
            return await run_in_thread(_THREAD, lambda: edits.write(body.reason, cluster.clock))

    return begin_operation(operations, _EDIT, job.hex(), body.trigger_id, write)


async def edit_status(
    operations: RunningOperations, job: JobParameter, trigger: TriggerParameter
) -> models.StateEditOperationResult:
    """Return the status of edits: the location of the new savepoint and its changes, or the failure."""
    task = find_operation(operations, _EDIT, job.hex(), trigger, _EDIT)
    outcome = _outcome(task) if task.done() else None
    return models.StateEditOperationResult(status=progress_of(task), operation=outcome)


def _outcome(task: asyncio.Task[Any]) -> models.StateEditOutcome:
    failure = failure_cause_of(task)
    if failure is not None:
        return models.StateEditOutcome(failure_cause=failure)
    written: CompletedCheckpoint = task.result()
    edit = written.metadata.edit
    assert edit is not None, "an edited savepoint lists its changes"
    return models.StateEditOutcome(
        location=with_scheme(written.uri),
        changes=[
            models.StateChangeInfo(
                operator=one.operator,
                state=one.state,
                action=one.action,
                rows_before=one.row_count_before,
                rows=one.row_count,
                added=one.added_count,
                changed=one.changed_count,
                removed=one.removed_count,
            )
            for one in edit.changes
        ],
    )


async def _stored(
    cluster: ClusterView, known: JobSnapshots, checkpoint_id: int
) -> "StoredStateView":
    from headrace.rest.state.stored_state_view import StoredStateView

    return StoredStateView(await known.find(checkpoint_id), await known.settings(), cluster.clock)


def _operator(found: OperatorDescription) -> models.StateOperator:
    return models.StateOperator(
        id=found.operator_id.hex(),
        uid=found.uid,
        name=found.name,
        vertex=found.vertex_name,
        parallelism=found.parallelism,
        max_parallelism=found.max_parallelism,
        size=None,
        rows=None,
    )


def _snapshot(found: JobSnapshot) -> models.StateSnapshot:
    return models.StateSnapshot(
        id=found.checkpoint_id,
        kind=found.kind,
        savepoint_format=found.savepoint_format or None,
        timestamp=found.timestamp_ms,
        size=found.size_bytes,
        path=with_scheme(found.uri) if found.uri else "",
        problem=found.problem or None,
    )
