"""Handlers of asynchronous operations: requested checkpoints and savepoints, stops, disposals of savepoints.

Each starts an operation and answers with its trigger id; a repeated trigger id starts nothing new. Clients use
the id to request the operation's status.
"""

import asyncio
import logging
import os
import re
from collections.abc import Callable, Coroutine
from typing import Any, Final

from headrace.checkpoint.options import SAVEPOINT_DIRECTORY
from headrace.checkpoint.retention import cleaner
from headrace.checkpoint.storage import file_systems
from headrace.core.barriers import SavepointFormatType
from headrace.core.errors import ConfigurationError, HeadraceError
from headrace.core.ids import ID_PATTERN, ID_TEXT_FORM, JobId, UniqueId
from headrace.core.randomness import system_random
from headrace.core.threads import run_in_thread
from headrace.rest.cluster_view import ClusterView
from headrace.rest.handler_errors import BadRequestError, NotFoundError
from headrace.rest.handlers.checkpoints import with_scheme
from headrace.rest.handlers.parameters import (
    ClusterParameter,
    JobParameter,
    RunningOperations,
    TriggerParameter,
)
from headrace.rest.models import checkpoints as models
from headrace.rest.models.cluster import TriggerAnswer
from headrace.rest.models.jobs import FailureCause, OperationStatus
from headrace.rest.operations import Operations

_LOG: Final = logging.getLogger(__name__)
SAVEPOINT: Final = "savepoint"
CHECKPOINT: Final = "checkpoint"
_DISPOSAL: Final = "savepoint disposal"
OF_A_JOB: Final = "savepoint operation"
"""Title of operations on a job that are not found; for checkpoints too, as in Flink."""
NO_JOB: Final = ""
"""Subject of operations that belong to no job."""
_WITHOUT_LIMIT: Final = None
"""No time limit here, as snapshots are limited by `execution.checkpointing.timeout`."""


async def trigger_savepoint(
    cluster: ClusterParameter,
    operations: RunningOperations,
    job: JobParameter,
    body: models.SavepointTriggerRequest | None = None,
) -> TriggerAnswer:
    """Start a savepoint; with `cancel-job` the job is cancelled once the savepoint is complete."""
    request = body or models.SavepointTriggerRequest()
    directory = _directory(cluster, request.target_directory, "target-directory")

    async def take() -> str:
        taking = cluster.dispatcher.trigger_savepoint(
            job, directory, SavepointFormatType[request.format_type]
        )
        location = await _logged(job, cluster.ask(taking, _WITHOUT_LIMIT))
        if request.cancel_job:
            await cluster.change(cluster.dispatcher.cancel_job(job))
        return location

    return begin_operation(operations, SAVEPOINT, job.hex(), request.trigger_id, take)


async def stop_with_savepoint(
    cluster: ClusterParameter,
    operations: RunningOperations,
    job: JobParameter,
    body: models.StopRequest | None = None,
) -> TriggerAnswer:
    """Start to stop a job with a savepoint."""
    request = body or models.StopRequest()
    directory = _directory(cluster, request.target_directory, "targetDirectory")

    async def stop() -> str:
        stopping = cluster.dispatcher.stop_with_savepoint(
            job, directory, request.drain, SavepointFormatType[request.format_type]
        )
        return await _logged(job, cluster.change(stopping, _WITHOUT_LIMIT))

    return begin_operation(operations, SAVEPOINT, job.hex(), request.trigger_id, stop)


async def savepoint_status(
    operations: RunningOperations, job: JobParameter, trigger: TriggerParameter
) -> models.SavepointOperationResult:
    """Return the status of a savepoint or a stop."""
    return savepoint_status_of(find_operation(operations, SAVEPOINT, job.hex(), trigger, OF_A_JOB))


async def request_checkpoint(
    cluster: ClusterParameter,
    operations: RunningOperations,
    job: JobParameter,
    body: models.CheckpointTriggerRequest | None = None,
) -> TriggerAnswer:
    """Start a checkpoint."""
    request = body or models.CheckpointTriggerRequest()
    if request.checkpoint_type == "INCREMENTAL":
        raise BadRequestError(
            "Flink does not support triggering incremental checkpoint explicitly. See FLINK-33723."
        )

    async def take() -> int:
        is_full = request.checkpoint_type == "FULL"
        return await cluster.ask(
            cluster.dispatcher.trigger_checkpoint(job, is_full), _WITHOUT_LIMIT
        )

    return begin_operation(operations, CHECKPOINT, job.hex(), request.trigger_id, take)


async def checkpoint_status(
    operations: RunningOperations, job: JobParameter, trigger: TriggerParameter
) -> models.CheckpointOperationResult:
    """Return the status of a requested checkpoint."""
    task = find_operation(operations, CHECKPOINT, job.hex(), trigger, OF_A_JOB)
    outcome = None
    if task.done():
        failure = failure_cause_of(task)
        checkpoint_id = task.result() if failure is None else None
        outcome = models.CheckpointOutcome(checkpoint_id=checkpoint_id, failure_cause=failure)
    return models.CheckpointOperationResult(status=progress_of(task), operation=outcome)


async def delete_savepoint(
    cluster: ClusterParameter, operations: RunningOperations, body: models.SavepointDisposalRequest
) -> TriggerAnswer:
    """Start to delete a savepoint; only one whose metadata was written with the cluster's key."""
    path = body.savepoint_path
    if not file_systems.is_whole(path):
        raise BadRequestError(
            f"the path '{path}' is relative, and the cluster has another working directory: give the whole path, as "
            f"printed when the savepoint was completed; in the cluster's working directory it would be "
            f"{file_systems.absolute_uri(path)}"
        )

    async def dispose() -> None:
        await run_in_thread(
            "headrace-disposal",
            lambda: cleaner.dispose_savepoint(path, cluster.settings, cluster.clock),
        )

    return begin_operation(operations, _DISPOSAL, NO_JOB, body.trigger_id, dispose)


async def disposal_status(
    operations: RunningOperations, trigger: TriggerParameter
) -> models.SavepointOperationResult:
    """Return the status of the deletion of a savepoint."""
    task = find_operation(operations, _DISPOSAL, NO_JOB, trigger, _DISPOSAL)
    return savepoint_status_of(task, models.SavepointOutcome())


def progress_of(task: asyncio.Task[Any]) -> OperationStatus:
    """Return whether an operation is running or has ended."""
    return OperationStatus(id="COMPLETED" if task.done() else "IN_PROGRESS")


def failure_cause_of(task: asyncio.Task[Any]) -> FailureCause | None:
    """Return the reason why an operation failed, or None."""
    error = asyncio.CancelledError() if task.cancelled() else task.exception()
    if error is None:
        return None
    text = str(error) if isinstance(error, HeadraceError) else f"{type(error).__name__}: {error}"
    return FailureCause(class_name=type(error).__name__, stack_trace=text)


def _directory(cluster: ClusterView, given: str | None, name: str) -> str:
    """Return the folder for a savepoint. BadRequestError if none is set, whether the job is known or not."""
    directory = given or cluster.settings.get_option(SAVEPOINT_DIRECTORY)
    if not directory:
        problem = "give a folder for the savepoint, or set this option"
        raise BadRequestError(
            f"Config key [{SAVEPOINT_DIRECTORY.key}] is not set. Property [{name}] must be provided."
        ) from ConfigurationError(SAVEPOINT_DIRECTORY.key, "", problem)
    # A path may be relative to the working directory of the cluster's process; its normalised form is used.
    return (
        directory
        if file_systems.is_uri(directory)
        else os.path.abspath(os.path.expanduser(directory))
    )


async def _logged(job: JobId, savepoint: Coroutine[Any, Any, str]) -> str:
    """Await a savepoint and log its location in the cluster, as the client may be gone by then."""
    try:
        location = await savepoint
    except HeadraceError as error:
        # For the log file: the client gets the error, and nothing is lost if nobody receives it.
        _LOG.info("a savepoint of job %s, requested over REST, has failed: %s", job, error)
        raise
    _LOG.warning(
        "a savepoint of job %s, requested over REST, is complete: %s", job, with_scheme(location)
    )
    return location


def begin_operation(
    operations: Operations,
    kind: str,
    subject: str,
    trigger_id: str | None,
    begin: Callable[[], Coroutine[Any, Any, Any]],
) -> TriggerAnswer:
    """Start an operation, and return its trigger id; BadRequestError if the given id is not valid."""
    trigger = (trigger_id or UniqueId.generate(system_random()).hex()).lower()
    if not re.fullmatch(ID_PATTERN, trigger):
        raise BadRequestError(
            f"Request did not match expected format: triggerId '{trigger}' is not {ID_TEXT_FORM}"
        )
    operations.start(kind, subject, trigger, begin)
    return TriggerAnswer(request_id=trigger)


def find_operation(
    operations: Operations, kind: str, subject: str, trigger: str, title: str
) -> asyncio.Task[Any]:
    """Return a started operation on a job (`subject`) or on none; NotFoundError, which calls it `title`."""
    task = operations.find(kind, subject, trigger.lower())
    if task is None:
        of_job = f" for job {subject}" if subject else ""
        raise NotFoundError(f"There is no {title} with triggerId={trigger}{of_job}.")
    return task


def savepoint_status_of(
    task: asyncio.Task[Any], done: models.SavepointOutcome | None = None
) -> models.SavepointOperationResult:
    """Return the status of an operation: `done`, or the location of a savepoint, or the failure."""
    outcome = None
    if task.done():
        failure = failure_cause_of(task)
        if failure is not None:
            outcome = models.SavepointOutcome(failure_cause=failure)
        else:
            outcome = done or models.SavepointOutcome(location=with_scheme(task.result()))
    return models.SavepointOperationResult(status=progress_of(task), operation=outcome)
