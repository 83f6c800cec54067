"""DataFrameCoordinator: runs the Spark job that pushes a DataFrame into source subtasks, and reruns it after failures.

    all subtasks ready ──► plan the DataFrame, announce its partitions ──► Spark job: each task pushes its partition
    a subtask failed ───► cancel the job, wait for new attempts        job failed ───► the Headrace job fails

PartitionOwners assigns partitions to subtasks:

    started afresh ── announce(n): i goes to subtask i modulo parallelism ──► announced ── ended ──► …
    restored ── each reader reports the partitions in its state ───────────────────▲

In a job that takes checkpoints the rows must be the same, in the same order, each time they are computed. A DataFrame
that may give other rows is written to files once, and pushed from there. These copies lie next to the job's
checkpoints, which hold positions in them, or in a new folder for temporary files if the checkpoints do not outlive the
driver. The plan in a checkpoint is compared with the present one when a job is restored.

Source: Flink SourceCoordinator.
"""

import itertools
import logging
import re
import tempfile
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec
from pyspark.sql import DataFrame

from headrace.checkpoint.options import CHECKPOINT_DIRECTORY, INTERVAL, SHARED_FILES
from headrace.checkpoint.storage.file_systems import make_folder
from headrace.cluster.job_master.coordinators.operator_coordinator import CoordinatorContext
from headrace.connectors.dataframe.messages import (
    PartitionEnded,
    PartitionsAnnounced,
    ReaderEvent,
    ReaderOpened,
    SourceState,
)
from headrace.connectors.dataframe.staging import DATAFRAMES_FOLDER
from headrace.connectors.files.paths import file_system_of, fixed_place
from headrace.connectors.files.sink.staging import remove_if_empty
from headrace.core.config import Settings
from headrace.core.errors import HostError, ProgramError
from headrace.core.ids import ExecutionAttemptId
from headrace.core.shuffle_descriptors import TaskManagerLocation
from headrace.core.threads import run_in_thread, start_thread
from headrace.network.errors import ConnectionLostError, IngestRefusedError
from headrace.spark.dataframes.push import (
    RESULT_SCHEMA_TEXT,
    PushTarget,
    default_parallelism,
    plan_identity,
    plan_push,
    push_body,
    unrepeatable_part,
)
from headrace.spark.session.authentication import TaskSecrets, handed_to_tasks
from headrace.spark.session.spark_errors import root_message, user_location_in

_LOG = logging.getLogger(__name__)
_PASSING: Final = f"headrace-{DATAFRAMES_FOLDER}-"
_LAST_TASK_S: Final = 5.0
_RUN_NUMBERS: Final = itertools.count(1)
"""Numbers of pushing runs, unique in this process, so that cancelling one run never cancels another coordinator's."""
_EVENT: Final = msgspec.msgpack.Decoder[ReaderEvent](ReaderEvent)
_TARGET_LOST: Final = re.compile(
    rf"{re.escape(ConnectionLostError.__module__)}\."
    rf"(?:{ConnectionLostError.__name__}|{IngestRefusedError.__name__})\b"
)


def make_folder_of_copies(settings: Settings) -> str:
    """Create a folder for copies and return its path. CheckpointStorageError or OSError if it cannot be created."""
    directory = settings.get_option(CHECKPOINT_DIRECTORY)
    if not directory:
        return tempfile.mkdtemp(prefix=_PASSING)
    folder = f"{fixed_place(directory)}/{DATAFRAMES_FOLDER}"
    make_folder(folder, is_shared=settings.get_option(SHARED_FILES))
    return folder


def is_passing(copy_path: str) -> bool:
    """Return whether a copy is deleted with the driver, whose memory holds the checkpoints too."""
    return Path(copy_path).parent.name.startswith(_PASSING)


def delete_copy(copy_path: str) -> None:
    """Delete a copy, and its folder if that is empty then. May block."""
    file_system, path = file_system_of(copy_path)
    try:
        file_system.delete_dir(path)
        remove_if_empty(file_system, path.rpartition("/")[0])
    except OSError as error:
        _LOG.warning("the copy of a DataFrame at %s was not deleted: %s", copy_path, error)


class PartitionOwners:
    """Tracks the partitions of one source and the subtasks that own them."""

    def __init__(self, parallelism: int) -> None:
        self._parallelism = parallelism
        self._open: dict[int, set[int]] = {index: set() for index in range(parallelism)}
        # Partitions of each subtask at the announcement: a reader that starts before it must read them all.
        self._at_announcement: dict[int, frozenset[int]] = {}
        # The oldest checkpoint in which readers' states hold their partitions; None before there is one.
        self._first_checkpoint_id: int | None = None
        self._starts_from_state: set[int] = set()
        self.is_announced = False

    @property
    def open_partitions(self) -> Mapping[int, int]:
        """Return the subtask of each partition that has not ended."""
        return {each: index for index, mine in self._open.items() for each in sorted(mine)}

    def partitions_of(self, subtask_index: int) -> tuple[int, ...]:
        """Return the partitions of a subtask that have not ended, ascending."""
        return tuple(sorted(self._open[subtask_index]))

    def announce(self, partition_count: int, first_partition: int = 0) -> None:
        """Assign the partitions of the planned DataFrame, which are numbered from `first_partition` on."""
        assert not self.is_announced
        self.is_announced = True
        end = first_partition + partition_count
        for index in range(self._parallelism):
            start = first_partition + (index - first_partition) % self._parallelism
            mine = range(start, end, self._parallelism)
            self._open[index] = set(mine)
            self._at_announcement[index] = frozenset(mine)

    def checkpoint_taken(self, checkpoint_id: int) -> None:
        """Note a checkpoint: readers hear of partitions announced later only after their part of it."""
        if self.is_announced and self._first_checkpoint_id is None:
            self._first_checkpoint_id = checkpoint_id

    def restored(self, checkpoint_id: int, *, was_announced: bool) -> None:
        """Start all subtasks from a checkpoint; if it has announced partitions, the readers report theirs."""
        if was_announced:
            self.is_announced = True
            self._first_checkpoint_id = checkpoint_id
            self._starts_from_state = set(range(self._parallelism))

    def subtask_reset(self, subtask_index: int, checkpoint_id: int | None) -> None:
        """Restart one subtask from a checkpoint, or afresh, while the others continue."""
        first = self._first_checkpoint_id
        if first is not None and checkpoint_id is not None and checkpoint_id >= first:
            self._starts_from_state.add(subtask_index)
        else:
            self._starts_from_state.discard(subtask_index)

    def handle_event(self, subtask_index: int, payload: bytes) -> None:
        """Handle a reader's event: it opens, or has received all of a partition."""
        event: ReaderEvent = _EVENT.decode(payload)
        match event:
            case ReaderOpened(positions):
                self.opened(subtask_index, [position.partition for position in positions])
            case PartitionEnded(partition):
                self.ended(subtask_index, partition)

    def opened(self, subtask_index: int, partitions: Iterable[int]) -> None:
        """Note that a reader opens, with these partitions in its restored state."""
        if not self.is_announced:
            return
        if subtask_index in self._starts_from_state:
            self._open[subtask_index] = set(partitions)
        else:
            self._open[subtask_index] = set(self._at_announcement[subtask_index])

    def ended(self, subtask_index: int, partition: int) -> None:
        """Note that a subtask has emitted all rows of a partition."""
        self._open[subtask_index].discard(partition)


class DataFramePushError(HostError):
    """The Spark job that pushes a DataFrame has failed; a rerun may succeed.

    `place` is the operator with the line that created it. If a user function raised an error inside Spark, its line
    comes first.
    """

    recoverable = True

    def __init__(self, place: str, reason: str) -> None:
        raised_at = user_location_in(reason)
        super().__init__(
            f"{reason.splitlines()[0]} ({raised_at + ', ' if raised_at else ''}in the Spark job that reads the "
            f"DataFrame of {place})\n{reason}"
        )


class PushTargetLostError(DataFramePushError):
    """The Spark job failed because a source subtask was lost or refused the rows."""

    is_consequence = True


def push_error(place: str, reason: str) -> DataFramePushError:
    """Return the error for Spark's message about its job, which has the form of `root_message`."""
    kind = PushTargetLostError if _TARGET_LOST.match(reason) else DataFramePushError
    return kind(place, reason)


class DataFrameChangedError(ProgramError):
    """A DataFrame's plan differs from that in the checkpoint, so that positions in the rows are invalid."""

    def __init__(self, place: str, before: str, now: str) -> None:
        super().__init__(
            f"the DataFrame of {place} differs from the one in the checkpoint that the job is restored from: it had "
            f"{before}, and now has {now}. Make it from the same files, with the same expressions and the "
            "same Spark settings, or start without the checkpoint"
        )


@dataclass(frozen=True)
class Computed:
    """Plan that computes the rows, once it is known; fields as in SourceState."""

    plan: str
    parallelism: int
    copy_path: str


@dataclass
class _Pushing:
    """One run of the Spark job."""

    group: str
    is_cancelled: bool = False
    ended: threading.Event = field(default_factory=threading.Event)


class DataFrameCoordinator:
    """Starts the pushing Spark job once all subtasks are ready, and cancels it with the Headrace job.

    Implements CheckpointedCoordinator.
    """

    def __init__(self, context: CoordinatorContext, df: DataFrame, secrets: TaskSecrets) -> None:
        self._context = context
        self._df = df
        self._secrets = secrets
        self._takes_checkpoints = context.settings.duration_ms(INTERVAL) > 0
        self._owners = PartitionOwners(context.parallelism)
        self._ready: dict[int, tuple[ExecutionAttemptId, TaskManagerLocation]] = {}
        self._pushing: _Pushing | None = None
        self._known = Computed("", 0, "")
        self._was_checkpointed = False
        # Of a copy that was begun here, also where nothing was announced yet.
        self._copy_path = ""

    def start(self) -> None:
        """Do nothing until the subtasks are ready."""

    def subtask_ready(self, attempt_id: ExecutionAttemptId, location: TaskManagerLocation) -> None:
        """Note where a subtask runs; the last one starts the job."""
        self._ready[attempt_id.subtask_index] = (attempt_id, location)
        if len(self._ready) == self._context.parallelism and self._pushing is None:
            self._start_pushing()

    def subtask_failed(self, attempt_id: ExecutionAttemptId) -> None:
        """Stop pushing until a new attempt is ready."""
        known = self._ready.get(attempt_id.subtask_index)
        if known is not None and known[0] == attempt_id:
            del self._ready[attempt_id.subtask_index]
            self._cancel()

    def handle_event(self, attempt_id: ExecutionAttemptId, payload: bytes) -> None:
        """Handle a reader's event: it opens, or has received all of a partition."""
        self._owners.handle_event(attempt_id.subtask_index, payload)

    def checkpoint(self, checkpoint_id: int) -> bytes:
        """Return the identity of the plan; the positions are in the readers' states.

        ProgramError in a job without periodic checkpoints, in which nothing ensures that rows can be recomputed alike.
        """
        if not self._takes_checkpoints:
            raise ProgramError(
                f"{self._context.place} reads a DataFrame, whose positions are valid only in a job that takes "
                f"checkpoints from its start: set {INTERVAL.key}"
            )
        self._was_checkpointed = True
        self._owners.checkpoint_taken(checkpoint_id)
        known = self._known
        state = SourceState(
            self._owners.is_announced, known.plan, known.parallelism, known.copy_path
        )
        return msgspec.msgpack.encode(state)

    def checkpoint_completed(self, checkpoint_id: int) -> None:
        """Do nothing."""

    def checkpoint_aborted(self, checkpoint_id: int) -> None:
        """Do nothing."""

    def reset(self, checkpoint_id: int | None, state: bytes | None) -> None:
        """Restart all subtasks; readers restored from a checkpoint report which rows they have."""
        self._cancel()
        self._ready.clear()
        self._owners = PartitionOwners(self._context.parallelism)
        if checkpoint_id is None or state is None:
            return
        restored = msgspec.msgpack.decode(state, type=SourceState)
        self._owners.restored(checkpoint_id, was_announced=restored.is_announced)
        if restored.is_announced:
            self._known = Computed(restored.plan, restored.parallelism, restored.copy_path)

    def subtask_reset(self, subtask_index: int, checkpoint_id: int | None) -> None:
        """Restart one subtask while the others continue."""
        self._owners.subtask_reset(subtask_index, checkpoint_id)

    async def job_finishing(self) -> None:
        """Let `close` delete the copy if all partitions have ended; a job stopped before, to be resumed, keeps it."""
        if self._owners.is_announced and not self._owners.open_partitions:
            self._was_checkpointed = False

    async def close(self) -> None:
        """Cancel the Spark job if it runs; a copy that a checkpoint may refer to stays."""
        pushing = self._pushing
        if pushing is not None and self._owners.is_announced and not self._owners.open_partitions:
            # Its last task is about to return: cancelled now, Spark would show the job as failed, without its rows.
            name = f"end-of-{pushing.group}"
            await run_in_thread(name, lambda: pushing.ended.wait(_LAST_TASK_S))
        self._cancel()
        copy_path = self._known.copy_path or self._copy_path
        if copy_path and (is_passing(copy_path) or not self._was_checkpointed):
            self._known, self._copy_path = Computed("", 0, ""), ""
            name = f"clean-{self._context.operator_name}"
            await run_in_thread(name, lambda: delete_copy(copy_path))

    def _cancel(self) -> None:
        pushing, self._pushing = self._pushing, None
        if pushing is None or pushing.ended.is_set():
            return
        pushing.is_cancelled = True
        # Speaks to the JVM, hence not on the JobMaster's thread.
        start_thread(f"cancel-{pushing.group}", lambda: self._cancel_until_ended(pushing))

    def _cancel_until_ended(self, pushing: _Pushing) -> None:
        while not pushing.ended.is_set():
            # A cancellation that comes before Spark has taken the job has no effect, so it is repeated.
            try:
                self._df.sparkSession.sparkContext.cancelJobGroup(pushing.group)
            except Exception:
                return
            pushing.ended.wait(0.5)

    def _start_pushing(self) -> None:
        context, owners = self._context, self._owners
        run_number = next(_RUN_NUMBERS)
        target = PushTarget(
            context.job_id,
            context.operator_id,
            tuple(self._ready[index][1] for index in range(context.parallelism)),
            run_number,
            owners.open_partitions if owners.is_announced else None,
        )
        group = f"headrace-{context.job_id.hex()[:8]}-{context.operator_id.hex()[:8]}-{run_number}"
        pushing = self._pushing = _Pushing(group)
        if owners.is_announced and not owners.open_partitions:
            self._announce(pushing, 0, self._known)
            pushing.ended.set()
            return
        known = self._known
        start_thread(f"push-{context.operator_name}", lambda: self._push(pushing, target, known))

    def _push(self, pushing: _Pushing, target: PushTarget, known: Computed) -> None:
        """Run the Spark job, on a thread of its own, to which the job group belongs."""
        context, spark_context = self._context, self._df.sparkSession.sparkContext
        try:
            spark_context.setJobGroup(
                pushing.group, f"rows of '{context.operator_name}'", interruptOnCancel=True
            )
            df, copy_path = self._repeatable(known.copy_path)
            parallelism = known.parallelism or default_parallelism(df.sparkSession)
            plan = plan_push(df, push_body(target), RESULT_SCHEMA_TEXT, parallelism)
            count, identity = plan.partition_count, ""
            if self._takes_checkpoints:
                identity = plan_identity(df, count, parallelism)
                if target.open_partitions is not None and known.plan not in ("", identity):
                    raise DataFrameChangedError(context.place, known.plan, identity)
            computed = Computed(identity, parallelism, copy_path)
            context.run_async(lambda: self._announce(pushing, count, computed))
            with handed_to_tasks(spark_context, self._secrets):
                plan.run()
        except Exception as error:
            if not pushing.is_cancelled:
                failure: HostError | ProgramError = (
                    error
                    if isinstance(error, ProgramError)
                    else push_error(context.place, root_message(error))
                )
                context.run_async(lambda: self._failed(pushing, failure))
        finally:
            pushing.ended.set()

    def _repeatable(self, copy_path: str) -> tuple[DataFrame, str]:
        """Return the DataFrame to push, and the path of its copy if it needs one; `copy_path`: an existing copy."""
        spark = self._df.sparkSession
        if not self._takes_checkpoints:
            return self._df, ""
        if copy_path:
            return spark.read.schema(self._df.schema).parquet(copy_path), copy_path
        reason = unrepeatable_part(self._df)
        if reason is None:
            return self._df, ""
        name, context = self._context.operator_name, self._context
        directory = context.settings.get_option(CHECKPOINT_DIRECTORY)
        if not directory and not str(spark.sparkContext.master).startswith("local"):
            raise ProgramError(
                f"the DataFrame of {context.place} cannot be recomputed with the same rows in order ({reason}), so "
                f"checkpoints need a copy of it: set {CHECKPOINT_DIRECTORY.key}, or write it to files and read those"
            )
        if not self._copy_path:
            folder = make_folder_of_copies(context.settings)
            self._copy_path = f"{folder}/{context.job_id.hex()}-{context.operator_id.hex()}"
        copy_path = self._copy_path
        _LOG.info("the DataFrame of '%s' (%s) is first copied to %s", name, reason, copy_path)
        self._df.write.mode("overwrite").parquet(copy_path)
        return spark.read.schema(self._df.schema).parquet(copy_path), copy_path

    def _announce(self, pushing: _Pushing, count: int, computed: Computed) -> None:
        if pushing is not self._pushing:
            return
        self._known = computed
        if not self._owners.is_announced:
            self._owners.announce(count)
        for subtask_index in range(self._context.parallelism):
            mine = self._owners.partitions_of(subtask_index)
            announced = msgspec.msgpack.encode(PartitionsAnnounced(mine))
            self._context.send_event(subtask_index, announced)

    def _failed(self, pushing: _Pushing, failure: HostError | ProgramError) -> None:
        if pushing is self._pushing:
            self._context.fail_job(failure)
