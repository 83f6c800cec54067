"""SinkCoordinator: commits a DataFrame sink of a job without checkpoints, by one Spark write at its end.

With checkpoints, `committer` writes with each of them.
"""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any, Final

import msgspec
from pyspark.sql import SparkSession

from headrace.cluster.job_master.coordinators.operator_coordinator import (
    CoordinatorContext,
    CoordinatorFactory,
    OperatorCoordinator,
)
from headrace.connectors.dataframe.messages import FilesStaged, SinkPayload
from headrace.connectors.dataframe.staging import has_checkpoints
from headrace.connectors.files.paths import file_system_of
from headrace.core.errors import HostError
from headrace.core.ids import ExecutionAttemptId
from headrace.core.shuffle_descriptors import TaskManagerLocation
from headrace.core.threads import run_in_thread
from headrace.spark.session.spark_errors import root_message

_STAGED: Final = msgspec.msgpack.Decoder(FilesStaged)


class SinkCommitError(HostError):
    """Results were complete but could not be written."""

    def __init__(self, operator_name: str, target: str, reason: str) -> None:
        super().__init__(
            f"{reason.splitlines()[0]} (while sink '{operator_name}' wrote {target} through Spark)\n{reason}"
        )


class StagedFiles:
    """Files that each subtask has staged; only the newest attempt of a subtask counts. Pure."""

    def __init__(self, parallelism: int) -> None:
        self._parallelism = parallelism
        self._staged: dict[int, FilesStaged] = {}

    def add(self, staged: FilesStaged) -> None:
        """Take a subtask's report; that of an older attempt is passed over."""
        known = self._staged.get(staged.subtask_index)
        if known is None or staged.attempt_number >= known.attempt_number:
            self._staged[staged.subtask_index] = staged

    def forget(self, subtask_index: int) -> None:
        """The subtask failed: its files will be written again."""
        self._staged.pop(subtask_index, None)

    @property
    def missing(self) -> tuple[int, ...]:
        """Subtasks that have not reported."""
        return tuple(i for i in range(self._parallelism) if i not in self._staged)

    @property
    def paths(self) -> tuple[str, ...]:
        """The files that make up the result, in order of subtasks."""
        return tuple(path for index in sorted(self._staged) for path in self._staged[index].paths)


class SinkCoordinator:
    """Collects the files that subtasks have staged and commits them when every task has finished."""

    def __init__(
        self, context: CoordinatorContext, payload: SinkPayload, spark: Callable[[], SparkSession]
    ) -> None:
        self._context = context
        self._payload = payload
        self._spark = spark
        self._staged = StagedFiles(context.parallelism)
        self._commit_end: asyncio.Future[None] | None = None
        self._is_closed = False
        # Then everything goes through checkpoints and the Committer: staged files are theirs.
        self._has_checkpoints = has_checkpoints(context.settings)

    def start(self) -> None:
        """Staged files of an earlier run of the same sink object are no part of this one."""
        if not self._has_checkpoints:
            self._remove_staging()

    def subtask_ready(self, attempt_id: ExecutionAttemptId, location: TaskManagerLocation) -> None:
        """Writers need nothing from here."""

    def subtask_failed(self, attempt_id: ExecutionAttemptId) -> None:
        """Forget the attempt's files."""
        self._staged.forget(attempt_id.subtask_index)

    def handle_event(self, attempt_id: ExecutionAttemptId, payload: bytes) -> None:
        """A writer has staged its last file."""
        self._staged.add(_STAGED.decode(payload))

    async def job_finishing(self) -> None:
        """Write the result through Spark; SinkCommitError makes the job FAILED."""
        if self._has_checkpoints:
            return
        if self._staged.missing:
            raise SinkCommitError(
                self._context.operator_name,
                self._payload.path,
                f"subtasks {', '.join(map(str, self._staged.missing))} finished without staging their files",
            )
        self._commit_end = run_in_thread(f"commit-{self._context.operator_name}", self._commit)
        # Whoever waits may be cancelled; the thread cannot, and `close` must still see when it ends.
        await asyncio.shield(self._commit_end)

    async def close(self) -> None:
        """Leave no staged files; a commit that is running reads them, so it is let finish first."""
        if self._is_closed or self._has_checkpoints:
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
            spark = self._spark()
            spark.sparkContext.setJobGroup(
                f"headrace-{self._context.job_id.hex()[:8]}-commit",
                f"results of '{self._context.operator_name}'",
            )
            staged = spark.read.parquet(*self._staged.paths)
            writer = staged.write.format(payload.format).mode(payload.mode)
            writer.options(**payload.options).save(payload.path)
        except Exception as error:
            raise SinkCommitError(
                self._context.operator_name, payload.path, root_message(error)
            ) from error

    def _remove_staging(self) -> None:
        filesystem, directory = file_system_of(self._payload.staging_directory)
        with contextlib.suppress(FileNotFoundError):
            filesystem.delete_dir(directory)


def sink_coordinator_factory(spark: Callable[[], SparkSession]) -> CoordinatorFactory:
    """Return the factory of a DataFrame sink's coordinator in the JobMaster."""

    def create(context: CoordinatorContext, payload: bytes) -> OperatorCoordinator:
        decoded: Any = msgspec.msgpack.decode(payload, type=SinkPayload)
        return SinkCoordinator(context, decoded, spark)

    return create
