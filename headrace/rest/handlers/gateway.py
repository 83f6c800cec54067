"""Handlers that answer with messages of the DispatcherGateway, so that a remote client can call all its methods.

Source: Flink JobSubmitHandler, which takes a job graph; Flink's clients use JSON for the rest.
"""

import asyncio
from typing import Annotated, Any, Final, TypeVar

import msgspec
from fastapi import Depends, Path, Query, Request

from headrace.core.errors import DECODE_ERRORS
from headrace.core.ids import BlobKey, ClusterDataSetId, IntermediateDataSetId, JobId, OperatorId
from headrace.gateways.checkpoint_statistics import (
    CheckpointConfiguration,
    CheckpointDetails,
    CheckpointStatistics,
)
from headrace.gateways.dispatcher import JobOverview, JobResult
from headrace.gateways.job_master import CollectedResults, JobConfiguration, JobDetails
from headrace.gateways.messages import (
    Acknowledge,
    DataSetInfo,
    OperatorDescription,
    StateReadRequest,
    StoredCheckpoint,
    SubtaskState,
)
from headrace.graph.job_graph import JobGraph
from headrace.graph.job_plan import JobPlan
from headrace.rest.client_protocol import BLOB_CHUNK_BYTES_MAX, OperationOutcome
from headrace.rest.cluster_view import ClusterView
from headrace.rest.handler_errors import BadRequestError, ForbiddenError, UnavailableError
from headrace.rest.handlers.parameters import (
    CheckpointId,
    ClusterParameter,
    JobParameter,
    RunningOperations,
    TriggerParameter,
)
from headrace.rest.handlers.savepoints import CHECKPOINT, OF_A_JOB, SAVEPOINT, find_operation
from headrace.rest.models.base_models import WHOLE_ID
from headrace.rest.models.jobs import ReceivedBytes
from headrace.rest.options import WEB_SUBMIT_ENABLE

T = TypeVar("T")

_PIECES_MAX: Final = 1_000
_READ_MARGIN_S: Final = 30.0
_NAME_MAX: Final = 10_000


async def _read(request: Request, message_type: type[T]) -> T:
    try:
        return msgspec.msgpack.decode(await request.body(), type=message_type)
    except DECODE_ERRORS as error:
        raise BadRequestError(
            f"Request did not match expected format: the body is not a {message_type.__name__}: {error}"
        ) from None


async def _job_graph(request: Request) -> JobGraph:
    return await _read(request, JobGraph)


async def _state_read_request(request: Request) -> StateReadRequest:
    return await _read(request, StateReadRequest)


async def _operator_id(operatorid: Annotated[str, Path(pattern=WHOLE_ID)]) -> OperatorId:
    return OperatorId.from_hex(operatorid)


async def _data_set_id(datasetid: Annotated[str, Path(pattern=WHOLE_ID)]) -> IntermediateDataSetId:
    return IntermediateDataSetId.from_hex(datasetid)


async def _blob_key(
    digest: Annotated[str, Path(pattern="^[0-9a-fA-F]{64}$")],
    size: Annotated[int, Query(ge=0, lt=1 << 63)],
) -> BlobKey:
    return BlobKey(bytes.fromhex(digest), size)


async def take_job(
    cluster: ClusterParameter, graph: Annotated[JobGraph, Depends(_job_graph)]
) -> Acknowledge:
    """Accept a job whose blobs were uploaded before."""
    refuse_jobs(cluster)
    return await cluster.change(cluster.dispatcher.submit_job(graph))


async def put_blob_chunk(
    cluster: ClusterParameter,
    job: JobParameter,
    key: Annotated[BlobKey, Depends(_blob_key)],
    request: Request,
    offset: Annotated[int, Query(ge=0, lt=1 << 63)] = 0,
) -> ReceivedBytes:
    """Store a chunk of a job's blob, named by its SHA-256, and answer the number of stored bytes."""
    refuse_jobs(cluster)
    if cluster.blob_server is None:
        raise UnavailableError("This cluster has no blob server.")
    chunk = bytearray()
    async for piece in request.stream():
        chunk += piece
        if len(chunk) > BLOB_CHUNK_BYTES_MAX:
            raise BadRequestError(
                f"A chunk of a blob may have at most {BLOB_CHUNK_BYTES_MAX} bytes: send the rest with another offset."
            )
    received = await cluster.ask(cluster.blob_server.put_chunk(job, key, offset, bytes(chunk)))
    return ReceivedBytes(received=received)


def refuse_jobs(cluster: ClusterView) -> None:
    """Raise ForbiddenError if the cluster accepts neither jobs nor programs of clients."""
    if not cluster.accepts_jobs:
        raise ForbiddenError(
            f"This cluster accepts no jobs from clients: set {WEB_SUBMIT_ENABLE.key} to true at its start, or submit "
            f"to a session cluster."
        )


async def jobs_message(cluster: ClusterParameter) -> tuple[JobOverview, ...]:
    """List running and ended jobs."""
    return await cluster.jobs()


async def job_details_message(cluster: ClusterParameter, job: JobParameter) -> JobDetails:
    """Show a job with its vertices."""
    return await cluster.details(job)


async def job_result_message(cluster: ClusterParameter, job: JobParameter) -> JobResult:
    """Show the result of a job once it has ended."""
    status = await cluster.status(job)
    if not status.is_terminal_state():
        raise UnavailableError(f"Job {job.hex()} has not ended: it is {status.name}.")
    return await cluster.result(job)


async def job_plan_message(cluster: ClusterParameter, job: JobParameter) -> JobPlan:
    """Show a job's graph."""
    return await cluster.plan(job)


async def job_configuration_message(
    cluster: ClusterParameter, job: JobParameter
) -> JobConfiguration:
    """Show a job's settings, secrets masked."""
    return await cluster.configuration(job)


async def accumulators_message(cluster: ClusterParameter, job: JobParameter) -> dict[str, float]:
    """Show the accumulators of a job's functions."""
    return await cluster.accumulators(job)


async def checkpoint_statistics_message(
    cluster: ClusterParameter, job: JobParameter
) -> CheckpointStatistics:
    """Show counts, a summary and the newest checkpoints."""
    return await cluster.checkpoints(job)


async def checkpoint_configuration_message(
    cluster: ClusterParameter, job: JobParameter
) -> CheckpointConfiguration:
    """Show the settings of a job's checkpoints."""
    return await cluster.checkpoint_configuration(job)


async def checkpoint_details_message(
    cluster: ClusterParameter, job: JobParameter, checkpoint: CheckpointId
) -> CheckpointDetails | None:
    """Show a checkpoint with its subtasks, or nothing if it is not recorded any more."""
    return await cluster.checkpoint(job, checkpoint)


async def latest_checkpoint_message(
    cluster: ClusterParameter, job: JobParameter
) -> StoredCheckpoint | None:
    """Return the location of the newest complete checkpoint."""
    return await cluster.ask(cluster.dispatcher.request_latest_checkpoint(job))


async def savepoint_outcome_message(
    operations: RunningOperations, job: JobParameter, trigger: TriggerParameter
) -> OperationOutcome:
    """Return the outcome of a savepoint or a stop; a failed one is its error."""
    task = find_operation(operations, SAVEPOINT, job.hex(), trigger, OF_A_JOB)
    location = _result_of(task)
    return OperationOutcome(location is not None, location=location or "")


async def checkpoint_outcome_message(
    operations: RunningOperations, job: JobParameter, trigger: TriggerParameter
) -> OperationOutcome:
    """Return the outcome of a checkpoint; a failed one is its error."""
    task = find_operation(operations, CHECKPOINT, job.hex(), trigger, OF_A_JOB)
    checkpoint_id = _result_of(task)
    return OperationOutcome(
        checkpoint_id is not None, checkpoint_id=-1 if checkpoint_id is None else checkpoint_id
    )


def _result_of(task: asyncio.Task[Any]) -> Any:
    """Return the result of an operation, or None while it runs; raise its error if it has failed."""
    if task.cancelled():
        raise UnavailableError("The cluster is ending, and has cancelled the operation.")
    return task.result() if task.done() else None


async def operators_message(
    cluster: ClusterParameter,
    job: JobParameter,
    named: Annotated[str | None, Query(max_length=_NAME_MAX)] = None,
) -> tuple[OperatorDescription, ...]:
    """List the operators of a job, or the one with a uid, id or name."""
    if named is None:
        return await cluster.ask(cluster.dispatcher.request_operators(job))
    return (await cluster.ask(cluster.dispatcher.request_operator(job, named)),)


async def read_state(
    cluster: ClusterParameter,
    job: JobParameter,
    read: Annotated[StateReadRequest, Depends(_state_read_request)],
) -> SubtaskState:
    """Read an operator's state in one subtask."""
    timeout_s = max(0, read.query.duration_ms_max) / 1000 + _READ_MARGIN_S
    return await cluster.ask(cluster.dispatcher.read_state(job, read), timeout_s)


async def collected_results_message(
    cluster: ClusterParameter,
    job: JobParameter,
    operator: Annotated[OperatorId, Depends(_operator_id)],
    offset: Annotated[int, Query(ge=0, lt=1 << 63)] = 0,
    maximum: Annotated[int, Query(alias="max", ge=1, le=_PIECES_MAX)] = 64,
) -> CollectedResults:
    """Return records of a collect sink from piece `offset` on; earlier ones are deleted."""
    return await cluster.ask(
        cluster.dispatcher.fetch_collected_results(job, operator, offset, maximum)
    )


async def release_message(
    cluster: ClusterParameter,
    data_set: Annotated[IntermediateDataSetId, Depends(_data_set_id)],
    job: Annotated[str, Query(pattern=WHOLE_ID)],
) -> Acknowledge:
    """Delete the results that one job left, or is going to leave."""
    wanted = ClusterDataSetId(JobId.from_hex(job), data_set)
    return await cluster.change(cluster.resource_manager.release_cluster_partitions(wanted))


async def data_sets_message(cluster: ClusterParameter) -> tuple[DataSetInfo, ...]:
    """List results that jobs left in the cluster."""
    return await cluster.ask(cluster.resource_manager.list_data_sets())
