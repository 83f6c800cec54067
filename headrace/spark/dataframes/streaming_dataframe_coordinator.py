"""StreamingDataFrameCoordinator: runs a Spark query whose micro-batches are pushed into source subtasks.

    all subtasks ready ──► query starts ──► foreachBatch(df, batch_id), on a Spark thread:
        order: push ──► Spark job: each task pushes its partition; again after failures, from where the readers are
        order: done ──► a checkpoint with all rows of the micro-batch is complete: foreachBatch returns
        the job ends ──► the query is stopped, and foreachBatch raises

Spark writes a micro-batch to its commit log when foreachBatch returns, so the log never runs ahead of the job's
checkpoints. If Spark replays a micro-batch, rows in the checkpoint are skipped by its id and by the positions of
readers in its partitions, whose numbers continue from one micro-batch to the next. Only one micro-batch is in flight.

A micro-batch whose rows Spark might compute in another order is written to files first, and pushed from there; they
are deleted when it is done.
"""

import logging
import queue
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from headrace.checkpoint.options import CHECKPOINT_DIRECTORY, INTERVAL
from headrace.cluster.job_master.coordinators.operator_coordinator import CoordinatorContext
from headrace.connectors.dataframe.messages import (
    PartitionsAnnounced,
    StreamState,
)
from headrace.connectors.dataframe.staging import DATAFRAMES_FOLDER
from headrace.connectors.files.paths import file_system_of, fixed_place
from headrace.connectors.files.sink.staging import exists
from headrace.core.errors import HeadraceError, HostError, ProgramError
from headrace.core.ids import ExecutionAttemptId
from headrace.core.shuffle_descriptors import TaskManagerLocation
from headrace.core.threads import run_in_thread, start_thread
from headrace.graph.pipeline_options import IS_PREVIEW
from headrace.spark.dataframes.dataframe_coordinator import (
    PartitionOwners,
    PushTargetLostError,
    delete_copy,
    push_error,
)
from headrace.spark.dataframes.push import (
    RESULT_SCHEMA_TEXT,
    PushTarget,
    default_parallelism,
    plan_nodes,
    plan_push,
    push_body,
)
from headrace.spark.session.authentication import TaskSecrets, handed_to_tasks
from headrace.spark.session.spark_errors import root_message

_LOG = logging.getLogger(__name__)
_LOST_PUSHES_MAX: Final = 20
_PUSH_AGAIN_MS: Final = 500.0
_LOOK_S: Final = 0.2
_ROW_BY_ROW: Final = frozenset(
    {
        *("StreamingRelation", "StreamingRelationV2", "EventTimeWatermark", "SubqueryAlias"),
        *("UpdateEventTimeWatermarkColumn", "Project", "Filter", "Union", "Generate", "Expand"),
    }
)
"""Names of logical operators whose output follows from their input, row by row."""


@dataclass(frozen=True)
class QueryOptions:
    """The program's choices for the query: `trigger` as in PySpark, and `checkpointLocation`, empty for ours."""

    trigger: Mapping[str, Any]
    location: str = ""


class QueryAheadError(ProgramError):
    """The query is at another micro-batch than the checkpoint that the job is restored from."""

    def __init__(self, place: str, held: int, batch_id: int, location: str) -> None:
        super().__init__(
            f"the query of {place} is at micro-batch {batch_id}, but the checkpoint that the job is restored from is "
            f"in micro-batch {held}: rows between them would be lost. Restore from the newest checkpoint, or start "
            f"without one and with another checkpoint_location than {location}"
        )


class QueryStoppedError(HostError):
    """Ends foreachBatch when its query is stopped.

    By this text Spark recognises an interrupted call and does not report it: StreamExecution.isInterruptionException.
    """

    def __init__(self) -> None:
        super().__init__(
            "py4j.protocol.Py4JJavaError: An error occurred while calling foreachBatch: java.lang.InterruptedException"
        )


@dataclass(frozen=True)
class _Push:
    """Order to push to `target`. `epoch` grows with each failure: outcomes of older orders are ignored."""

    target: PushTarget
    parallelism: int
    epoch: int


@dataclass
class Turn:
    """One call of foreachBatch, which waits for orders; None means the end of the micro-batch.

    `parallelism`: Spark's default at this time.
    """

    batch_id: int
    parallelism: int
    orders: "queue.SimpleQueue[_Push | None]" = field(default_factory=lambda: queue.SimpleQueue())
    is_pushing: bool = False
    is_over: bool = False

    def end(self) -> None:
        """Give the last order; later ones have no effect."""
        if not self.is_over:
            self.is_over = True
            self.orders.put(None)


class StreamingDataFrameCoordinator:
    """Keeps the query running as long as the job runs. Implements CheckpointedCoordinator."""

    def __init__(
        self,
        context: CoordinatorContext,
        df: DataFrame,
        options: QueryOptions,
        secrets: TaskSecrets,
    ) -> None:
        self._context: Final = context
        self._df: Final = df
        self._options: Final = options
        self._secrets: Final = secrets
        self._is_preview: Final = context.settings.get_option(IS_PREVIEW)
        self._takes_checkpoints: Final = context.settings.duration_ms(INTERVAL) > 0
        self._ready: dict[int, tuple[ExecutionAttemptId, TaskManagerLocation]] = {}
        self._owners = PartitionOwners(context.parallelism)
        self._state = StreamState()
        self._turn: Turn | None = None
        self._epoch = 0
        self._run_count = 0
        self._lost_push_count = 0
        # The oldest checkpoint with all rows of the micro-batch; None before one is triggered.
        self._held_from: int | None = None
        self._is_restored = False
        self._is_query_running = False
        self._has_query_ended = False
        self._is_closed = False
        self._passing_path = ""
        self._query: StreamingQuery | None = None

    def start(self) -> None:
        """Warn about the consequences if the job takes no checkpoints."""
        if not (self._takes_checkpoints or self._is_preview):
            _LOG.warning(
                "%s reads a streaming DataFrame in a job without checkpoints: rows in flight during a failure are "
                "lost, or arrive twice. For exactly-once delivery set %s",
                self._context.place,
                INTERVAL.key,
            )

    def subtask_ready(self, attempt_id: ExecutionAttemptId, location: TaskManagerLocation) -> None:
        """Note where a subtask runs; the last one starts the query, or pushes the rest of its micro-batch."""
        self._ready[attempt_id.subtask_index] = (attempt_id, location)
        if not self._are_all_ready:
            return
        if self._has_query_ended:
            self._announce(is_last=True)
        elif not self._is_query_running:
            self._is_query_running = True
            path = self._state.query_path
            start_thread(f"query-{self._context.operator_name}", lambda: self._run_query(path))
        else:
            self._give_order()

    def subtask_failed(self, attempt_id: ExecutionAttemptId) -> None:
        """Invalidate the present orders: a running push fails by itself, and a new attempt gets the rows again."""
        known = self._ready.get(attempt_id.subtask_index)
        if known is not None and known[0] == attempt_id:
            del self._ready[attempt_id.subtask_index]
            self._epoch += 1

    def handle_event(self, attempt_id: ExecutionAttemptId, payload: bytes) -> None:
        """Handle a reader's event: it opens, or has received all of a partition."""
        self._owners.handle_event(attempt_id.subtask_index, payload)
        self._finish_without_checkpoints()

    def checkpoint(self, checkpoint_id: int) -> bytes:
        """Return the micro-batch that the readers are in; ProgramError in a job without periodic checkpoints."""
        if not self._takes_checkpoints:
            raise ProgramError(
                f"{self._context.place} reads a streaming DataFrame, whose positions are valid only in a job that "
                f"takes "
                f"checkpoints from its start: set {INTERVAL.key}"
            )
        self._owners.checkpoint_taken(checkpoint_id)
        if self._have_all_ended and self._held_from is None:
            self._held_from = checkpoint_id
        return msgspec.msgpack.encode(self._state)

    def checkpoint_completed(self, checkpoint_id: int) -> None:
        """Let the query continue after a micro-batch that the checkpoint contains completely."""
        if self._held_from is not None and checkpoint_id >= self._held_from:
            self._finish_micro_batch()

    def checkpoint_aborted(self, checkpoint_id: int) -> None:
        """Do nothing: a later checkpoint contains the micro-batch too."""

    def reset(self, checkpoint_id: int | None, state: bytes | None) -> None:
        """Restart all subtasks; readers restored from a checkpoint report which rows they have."""
        self._epoch += 1
        self._ready.clear()
        self._owners = PartitionOwners(self._context.parallelism)
        self._held_from = None
        self._is_restored = checkpoint_id is not None and state is not None
        if checkpoint_id is None or state is None:
            self._state = StreamState(query_path=self._state.query_path)
            return
        self._state = msgspec.msgpack.decode(state, type=StreamState)
        self._owners.restored(checkpoint_id, was_announced=self._state.is_announced)

    def subtask_reset(self, subtask_index: int, checkpoint_id: int | None) -> None:
        """Restart one subtask while the others continue."""
        self._owners.subtask_reset(subtask_index, checkpoint_id)

    async def job_finishing(self) -> None:
        """Do nothing: this source commits nothing."""

    async def close(self) -> None:
        """Stop the query."""
        if self._is_closed:
            return
        self._is_closed = True
        await run_in_thread(f"stop-{self._context.operator_name}", self._stop_query)

    def _stop_query(self) -> None:
        query, passing_path = self._query, self._passing_path
        if query is not None:
            try:
                query.stop()
            except Exception as error:
                _LOG.warning("the query of %s could not be stopped: %s", self._context.place, error)
        if passing_path and exists(*file_system_of(passing_path)):
            delete_copy(passing_path)

    @property
    def _are_all_ready(self) -> bool:
        return len(self._ready) == self._context.parallelism

    @property
    def _have_all_ended(self) -> bool:
        return self._owners.is_announced and not self._owners.open_partitions

    # The query's threads.

    def _run_query(self, path: str) -> None:
        """Run the query until it ends; on a thread of its own."""
        failure: HeadraceError | None = None
        try:
            path = path or self._location()
            self._context.run_async(lambda: self._located(path))
            writer = self._df.writeStream.foreachBatch(self._process)
            writer = writer.option("checkpointLocation", path)
            if self._options.trigger:
                writer = writer.trigger(**self._options.trigger)
            self._query = writer.start()
            if self._is_closed:
                self._stop_query()
            self._query.awaitTermination()
        except HeadraceError as error:
            failure = error
        except Exception as error:
            failure = push_error(self._context.place, root_message(error))
        self._context.run_async(lambda: self._query_ended(failure))

    def _location(self) -> str:
        """Return the checkpoint location for a new query; a preview gets a temporary one instead of the program's."""
        if self._is_preview:
            self._passing_path = self._new_location()
            return self._passing_path
        return self._options.location or self._new_location()

    def _new_location(self) -> str:
        context = self._context
        directory = context.settings.get_option(CHECKPOINT_DIRECTORY)
        if directory:
            name = f"{context.job_id.hex()}-{context.operator_id.hex()}"
            return f"{fixed_place(directory)}/{DATAFRAMES_FOLDER}/{name}-query"
        # In a folder of its own, which is deleted with it.
        path = Path(tempfile.mkdtemp(prefix=f"headrace-{DATAFRAMES_FOLDER}-"), "query")
        path.mkdir()
        self._passing_path = str(path)
        return self._passing_path

    def _process(self, df: DataFrame, batch_id: int) -> None:
        """Push a micro-batch as often as the job needs; return when a checkpoint contains it.

        Called by foreachBatch.
        """
        turn = Turn(batch_id, default_parallelism(df.sparkSession))
        self._context.run_async(lambda: self._arrived(turn))
        copy_path = ""
        rows: DataFrame | None = None
        while True:
            order = self._next_order(turn)
            if order is None:
                break
            failure: HeadraceError | None = None
            try:
                if rows is None:
                    rows, copy_path = self._repeatable(df, batch_id)
                self._push(rows, order)
            except Exception as error:
                failure = push_error(self._context.place, root_message(error))
            self._context.run_async(
                lambda failure=failure, order=order: self._push_ended(turn, order, failure)
            )
        if copy_path:
            delete_copy(copy_path)

    def _next_order(self, turn: Turn) -> _Push | None:
        """Wait for an order. QueryStoppedError when the query must end."""
        while True:
            try:
                return turn.orders.get(timeout=_LOOK_S)
            except queue.Empty:
                # Nobody gives orders for a job that has ended.
                query = self._query
                if self._is_closed and query is not None and not query.isActive:
                    raise QueryStoppedError from None

    def _push(self, df: DataFrame, order: _Push) -> None:
        body = push_body(order.target)
        plan = plan_push(df, body, RESULT_SCHEMA_TEXT, order.parallelism)
        self._context.run_async(lambda: self._planned(order, plan.partition_count))
        with handed_to_tasks(df.sparkSession.sparkContext, self._secrets):
            plan.run()

    def _repeatable(self, df: DataFrame, batch_id: int) -> tuple[DataFrame, str]:
        """Return the micro-batch in a repeatable form, and the path of its copy, if it needs one."""
        if not self._takes_checkpoints or computes_row_by_row(self._df):
            return df, ""
        copy_path = f"{self._state.query_path}-rows/{batch_id}"
        if not exists(*file_system_of(f"{copy_path}/_SUCCESS")):
            df.write.mode("overwrite").parquet(copy_path)
        return df.sparkSession.read.schema(df.schema).parquet(copy_path), copy_path

    # The JobMaster's thread, in answer to them.

    def _located(self, path: str) -> None:
        self._state = msgspec.structs.replace(self._state, query_path=path)

    def _arrived(self, turn: Turn) -> None:
        self._turn = turn
        if self._are_all_ready:
            self._give_order()

    def _give_order(self) -> None:
        """Give the order for the micro-batch, if all subtasks are ready."""
        turn, state = self._turn, self._state
        if turn is None or turn.is_pushing or turn.is_over or self._is_closed:
            return
        if turn.batch_id != state.batch_id:
            if self._is_restored and not self._follows(turn.batch_id):
                held, path = state.batch_id, state.query_path
                error = QueryAheadError(self._context.place, held, turn.batch_id, path)
                self._context.fail_job(error)
                return
            self._state = StreamState(
                turn.batch_id,
                state.first_partition + state.partition_count,
                parallelism=turn.parallelism,
                query_path=state.query_path,
            )
            self._owners = PartitionOwners(self._context.parallelism)
            self._held_from = None
        elif self._is_restored and self._have_all_ended:
            self._finish_micro_batch()
            return
        self._is_restored = False
        if self._have_all_ended:
            return
        self._run_count += 1
        turn.is_pushing = True
        turn.orders.put(_Push(self._target(), self._state.parallelism, self._epoch))

    def _follows(self, batch_id: int) -> bool:
        """Return whether no rows are missing between the checkpoint and this micro-batch."""
        held = self._state.batch_id
        return held < 0 or (batch_id == held + 1 and self._have_all_ended)

    def _target(self) -> PushTarget:
        owners = self._owners
        return PushTarget(
            self._context.job_id,
            self._context.operator_id,
            tuple(self._ready[index][1] for index in range(self._context.parallelism)),
            self._run_count,
            owners.open_partitions if owners.is_announced else None,
            self._state.first_partition,
        )

    def _planned(self, order: _Push, count: int) -> None:
        if order.epoch != self._epoch or self._is_closed:
            return
        state = self._state
        if not state.is_announced:
            self._owners.announce(count, state.first_partition)
            self._state = msgspec.structs.replace(state, is_announced=True, partition_count=count)
        elif count != state.partition_count:
            self._context.fail_job(
                ProgramError(
                    f"micro-batch {state.batch_id} of {self._context.place} had {state.partition_count} partitions, "
                    f"but now has {count}: Spark divides it in another way than before. Give the source a fixed number "
                    "of partitions, or start without the checkpoint and with another checkpoint_location"
                )
            )
            return
        self._announce(is_last=False)
        self._finish_without_checkpoints()

    def _announce(self, *, is_last: bool) -> None:
        state = self._state
        first = state.first_partition
        for subtask_index in range(self._context.parallelism):
            mine = self._owners.partitions_of(subtask_index)
            message = PartitionsAnnounced(mine, state.batch_id + is_last, first, is_last)
            self._context.send_event(subtask_index, msgspec.msgpack.encode(message))

    def _push_ended(self, turn: Turn, order: _Push, failure: HeadraceError | None) -> None:
        turn.is_pushing = False
        if turn is not self._turn or self._is_closed:
            return
        if order.epoch != self._epoch:
            if self._are_all_ready:
                self._give_order()
        elif failure is None:
            self._lost_push_count = 0
        elif not self._have_all_ended:
            self._push_failed(failure)

    def _push_failed(self, failure: HeadraceError) -> None:
        """Repeat the push if a source subtask was lost; fail the job for another reason, or after several in a row.

        A lost subtask reports its own failure, but one that has ended, as its job is stopped, does not.
        """
        self._lost_push_count += 1
        if isinstance(failure, PushTargetLostError) and self._lost_push_count < _LOST_PUSHES_MAX:
            self._context.later.schedule(_PUSH_AGAIN_MS, self._push_again)
        else:
            self._lost_push_count = 0
            self._context.fail_job(failure)

    def _push_again(self) -> None:
        if self._are_all_ready:
            self._give_order()

    def _finish_without_checkpoints(self) -> None:
        if not self._takes_checkpoints and self._have_all_ended:
            self._finish_micro_batch()

    def _finish_micro_batch(self) -> None:
        if self._turn is not None and self._turn.batch_id == self._state.batch_id:
            self._turn.end()

    def _query_ended(self, failure: HeadraceError | None) -> None:
        self._is_query_running, self._turn, self._query = False, None, None
        if self._is_closed:
            return
        if failure is not None:
            self._context.fail_job(failure)
            return
        self._has_query_ended = True
        if self._are_all_ready:
            self._announce(is_last=True)


def computes_row_by_row(df: DataFrame) -> bool:
    """Return whether Spark can recompute each micro-batch of a streaming DataFrame with the same rows in order."""
    plan: Any = getattr(df, "_jdf").queryExecution().analyzed()  # noqa: B009
    names = {str(node.nodeName()) for node in plan_nodes(plan)}
    return bool(plan.deterministic()) and names <= _ROW_BY_ROW
