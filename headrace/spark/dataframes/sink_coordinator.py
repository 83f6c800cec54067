"""SinkCoordinator: commits a DataFrame sink of a job without checkpoints, once, when all its tasks have finished.

The commit is one Spark write, or one call of the user's function. With checkpoints, `committer` commits with each of
them.
"""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final

import msgspec
from pyspark.sql import DataFrame, SparkSession

from headrace.checkpoint.options import CHECKPOINT_DIRECTORY
from headrace.cluster.job_master.coordinators.operator_coordinator import (
    CoordinatorContext,
    CoordinatorFactory,
    OperatorCoordinator,
)
from headrace.connectors.dataframe.batch_log import BATCH_LOG_FORMAT, BatchLog
from headrace.connectors.dataframe.messages import (
    FilesStaged,
    FunctionPayload,
    SinkPayload,
    StagedPart,
)
from headrace.connectors.dataframe.sink import (
    BatchFunction,
    BatchId,
    batch_count_max,
    batch_function,
)
from headrace.connectors.dataframe.staging import batch_staging_folder
from headrace.connectors.files.paths import file_system_of
from headrace.connectors.prepared_output import has_checkpoints
from headrace.core.config import Settings
from headrace.core.errors import (
    USER_EXCEPTIONS,
    HostError,
    ProgramError,
    UserCodeError,
    wrap_user_error,
)
from headrace.core.ids import ExecutionAttemptId, JobId, OperatorId
from headrace.core.shuffle_descriptors import TaskManagerLocation
from headrace.core.threads import run_in_thread
from headrace.functions.sink import commit_key, scope_of
from headrace.spark.session.session import planned_or_running_master
from headrace.spark.session.spark_errors import root_message

_PAYLOAD: Final = msgspec.msgpack.Decoder[SinkPayload | FunctionPayload](
    SinkPayload | FunctionPayload
)
_STAGED: Final = msgspec.msgpack.Decoder(FilesStaged)
FUNCTION_TARGET: Final = "to its function"
ONLY_ID: Final = 1
"""Id of the only commit in a job without checkpoints."""


class SinkCommitError(HostError):
    """Results were complete but could not be written."""

    def __init__(self, operator_name: str, target: str, reason: str) -> None:
        super().__init__(
            f"{reason.splitlines()[0]} (while sink '{operator_name}' wrote {target} through Spark)\n{reason}"
        )


def check_batch_function(operator_name: str, settings: Settings, payload: FunctionPayload) -> None:
    """Raise HostError if the function is not of this process, ProgramError if workers share no folder with it."""
    known_function(operator_name, payload.function_id)
    master = str(planned_or_running_master(settings) or "local")
    has_place = payload.staging_path or settings.get_option(CHECKPOINT_DIRECTORY)
    if not has_place and not master.startswith("local"):
        raise ProgramError(
            f"the rows for the function of sink '{operator_name}' are staged in a folder that driver and "
            f"TaskManagers must share, as Spark's master is {master}: set {CHECKPOINT_DIRECTORY.key}, or staging_path"
        )


def known_function(operator_name: str, function_id: str) -> BatchFunction:
    """Return the function of a sink. HostError if this process does not have it."""
    function = batch_function(function_id)
    if function is None:
        raise HostError(
            f"this driver does not have the function of sink '{operator_name}': a job with such a sink must be "
            f"submitted by the process that created the sink"
        )
    return function


def call_batch_function(
    operator_name: str, function_id: str, staged: DataFrame, scope: str, checkpoint_id: int
) -> None:
    """Call a user's function with the rows of a commit of `scope`. UserCodeError if it raises an error; HostError."""
    function = known_function(operator_name, function_id)
    try:
        function(staged, BatchId.of_scope(checkpoint_id, scope))
    except USER_EXCEPTIONS as error:
        raise wrap_user_error(error, operator_name) from error


def scope_of_job(job_id: JobId, operator_id: OperatorId) -> str:
    """Return the scope of a sink's only commit in a job without checkpoints, which no later job continues."""
    return scope_of(commit_key(job_id.hex(), operator_id.hex(), ONLY_ID))


class StagedFiles:
    """Files that each subtask has staged; only a subtask's newest attempt counts. Pure."""

    def __init__(self, parallelism: int) -> None:
        self._parallelism = parallelism
        self._staged: dict[int, FilesStaged] = {}

    def add(self, staged: FilesStaged) -> None:
        """Add a subtask's report; the report of an older attempt is ignored."""
        known = self._staged.get(staged.subtask_index)
        if known is None or staged.attempt_number >= known.attempt_number:
            self._staged[staged.subtask_index] = staged

    def forget(self, subtask_index: int) -> None:
        """Forget the files of a subtask that failed: a new attempt writes them again."""
        self._staged.pop(subtask_index, None)

    @property
    def missing(self) -> tuple[int, ...]:
        """Return the subtasks that have not reported."""
        return tuple(i for i in range(self._parallelism) if i not in self._staged)

    @property
    def paths(self) -> tuple[str, ...]:
        """Return the paths of the result's files, in order of subtasks."""
        return tuple(path for index in sorted(self._staged) for path in self._staged[index].paths)

    @property
    def parts(self) -> tuple[StagedPart, ...]:
        """Return the files in the form for a committer; without checkpoints each subtask stages one."""
        newest = [self._staged[index] for index in sorted(self._staged)]
        return tuple(
            StagedPart(path, one.row_count, one.subtask_index, one.attempt_number)
            for one in newest
            for path in one.paths
        )

    @property
    def row_count(self) -> int:
        """Return the number of rows of the result."""
        return sum(staged.row_count for staged in self._staged.values())


class SinkCoordinator:
    """Collects the files that subtasks have staged and commits them when every task has finished."""

    def __init__(
        self,
        context: CoordinatorContext,
        payload: SinkPayload | FunctionPayload,
        spark: Callable[[], SparkSession],
    ) -> None:
        self._context = context
        self._payload = payload
        self._spark = spark
        self._staged = StagedFiles(context.parallelism)
        self._commit_end: asyncio.Future[None] | None = None
        self._is_closed = False
        self._target: Final = payload.path if isinstance(payload, SinkPayload) else FUNCTION_TARGET
        # Then everything goes through checkpoints and the Committer: staged files are theirs.
        self._has_checkpoints = has_checkpoints(context.settings)
        if isinstance(payload, SinkPayload):
            self._staging, self._is_temporary = payload.staging_directory, False
        else:
            self._staging = batch_staging_folder(payload, context.settings)
            self._is_temporary = self._staging == payload.temporary

    def start(self) -> None:
        """Delete files that an earlier run of the same sink object staged."""
        if not self._has_checkpoints:
            self._remove_staging()

    def subtask_ready(self, attempt_id: ExecutionAttemptId, location: TaskManagerLocation) -> None:
        """Do nothing: writers need nothing from the coordinator."""

    def subtask_failed(self, attempt_id: ExecutionAttemptId) -> None:
        """Forget the attempt's files."""
        self._staged.forget(attempt_id.subtask_index)

    def handle_event(self, attempt_id: ExecutionAttemptId, payload: bytes) -> None:
        """Handle a writer's report that it has staged its last file."""
        self._staged.add(_STAGED.decode(payload))

    async def job_finishing(self) -> None:
        """Write the result through Spark. SinkCommitError, which fails the job, if that fails."""
        if self._has_checkpoints:
            return
        if self._staged.missing:
            raise SinkCommitError(
                self._context.operator_name,
                self._target,
                f"subtasks {', '.join(map(str, self._staged.missing))} finished without staging their files",
            )
        self._commit_end = run_in_thread(f"commit-{self._context.operator_name}", self._commit)
        # Whoever waits may be cancelled; the thread cannot, and `close` must still see when it ends.
        await asyncio.shield(self._commit_end)

    async def close(self) -> None:
        """Delete staged files, after a running commit, which reads them, has ended.

        Files of checkpoints stay, unless they lie in a folder of this driver, whose checkpoints end with it.
        """
        if self._is_closed or (self._has_checkpoints and not self._is_temporary):
            return
        self._is_closed = True
        if self._commit_end is not None:
            await asyncio.wait([self._commit_end])
            # Whoever awaited `job_finishing` tells the error; it counts as seen also where nobody does any more.
            self._commit_end.exception()
        await run_in_thread(f"clean-{self._context.operator_name}", self._remove_staging)

    def _commit(self) -> None:
        payload = self._payload
        try:
            if isinstance(payload, SinkPayload) and payload.format == BATCH_LOG_FORMAT:
                self._append(payload)
                return
            spark = self._spark()
            spark.sparkContext.setJobGroup(
                f"headrace-{self._context.job_id.hex()[:8]}-commit",
                f"results of '{self._context.operator_name}'",
            )
            staged = spark.read.parquet(*self._staged.paths)
            if isinstance(payload, FunctionPayload):
                if self._staged.row_count:
                    call_batch_function(
                        self._context.operator_name,
                        payload.function_id,
                        staged,
                        scope_of_job(self._context.job_id, self._context.operator_id),
                        ONLY_ID,
                    )
                return
            writer = staged.write.format(payload.format).mode(payload.mode)
            writer.options(**payload.options).save(payload.path)
        except UserCodeError:
            raise
        except Exception as error:
            raise SinkCommitError(
                self._context.operator_name, self._target, root_message(error)
            ) from error

    def _append(self, payload: SinkPayload) -> None:
        if self._staged.row_count:
            most = batch_count_max(payload.options)
            scope = self._context.job_id.hex()
            BatchLog(payload.path).append(scope, ONLY_ID, self._staged.parts, most)

    def _remove_staging(self) -> None:
        filesystem, directory = file_system_of(self._staging)
        with contextlib.suppress(FileNotFoundError):
            filesystem.delete_dir(directory)


def sink_coordinator_factory(spark: Callable[[], SparkSession]) -> CoordinatorFactory:
    """Return the factory of a DataFrame sink's coordinator in the JobMaster."""

    def create(context: CoordinatorContext, payload: bytes) -> OperatorCoordinator:
        decoded = _PAYLOAD.decode(payload)
        if isinstance(decoded, FunctionPayload) and not has_checkpoints(context.settings):
            check_batch_function(context.operator_name, context.settings, decoded)
        return SinkCoordinator(context, decoded, spark)

    return create
