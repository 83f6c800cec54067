"""TaskReporter: takes reports from the threads of tasks, and sends them through their outboxes to the JobMaster.

A task leaves the table when its JobMaster knows of its end, or never will. Source: Flink TaskManagerActions,
TaskExecutor.updateTaskExecutionState.
"""

import logging
from collections.abc import Callable
from typing import Final

from headrace.checkpoint.errors import CheckpointFailureReason
from headrace.checkpoint.handles import CheckpointMetrics, TaskStateSnapshot
from headrace.cluster.error_reports import error_info_of
from headrace.cluster.task_executor.job_connections import JobConnection, JobConnections
from headrace.cluster.task_executor.task_metric_groups import TaskMetricGroups
from headrace.cluster.task_executor.task_outbox import (
    CheckpointAcknowledged,
    CheckpointDeclined,
    CheckpointMessage,
    DataEnded,
)
from headrace.cluster.task_executor.task_table import TaskEntry, TaskTable
from headrace.core.errors import HeadraceError
from headrace.core.ids import ExecutionAttemptId, OperatorId, ResultPartitionId
from headrace.core.lifecycle import ExecutionState
from headrace.gateways.errors import UnknownAttemptError
from headrace.gateways.messages import ExecutionReport, TaskMetrics
from headrace.metrics.names import without_rates
from headrace.network.gates.partition_requests import AnswerVerdict, ProducerVerdict, verdict_on
from headrace.rpc.endpoint import RpcEndpoint
from headrace.rpc.errors import AskTimeoutError, MailboxFullError, RecipientUnreachableError
from headrace.rpc.main_thread import is_on_loop

_LOG: Final = logging.getLogger(__name__)


class TaskReporter:
    """Reports of one TaskExecutor's tasks. Implements TaskListener, from any thread.

    `on_gone(entry)` is called when a task has ended and can be forgotten.
    """

    def __init__(
        self,
        endpoint: RpcEndpoint,
        tasks: TaskTable,
        jobs: JobConnections,
        on_gone: Callable[[TaskEntry], None],
        metric_groups: TaskMetricGroups,
    ) -> None:
        self._endpoint: Final = endpoint
        self._on_gone: Final = on_gone
        self._metric_groups: Final = metric_groups
        self._tasks: Final = tasks
        self._jobs: Final = jobs

    def state_changed(
        self, attempt_id: ExecutionAttemptId, state: ExecutionState, error: BaseException | None
    ) -> None:
        self._endpoint.run_async(lambda: self._state_changed(attempt_id, state, error))

    def operator_event(
        self, attempt_id: ExecutionAttemptId, operator_id: OperatorId, payload: bytes
    ) -> None:
        """Send an event to the operator's coordinator; wait while too many reports of the task are unsent."""
        entry = self._tasks.find(attempt_id)
        if entry is None:
            return
        entry.outbox.await_room(may_block=not is_on_loop(self._endpoint.rpc_service.loop))

        def put() -> None:
            if entry.outbox.put_event(operator_id, payload):
                self._drain(entry)

        self._endpoint.run_async(put)

    def checkpoint_acknowledged(
        self,
        attempt_id: ExecutionAttemptId,
        checkpoint_id: int,
        snapshot: TaskStateSnapshot,
        metrics: CheckpointMetrics,
    ) -> None:
        self._put(attempt_id, CheckpointAcknowledged(checkpoint_id, snapshot, metrics))

    def checkpoint_declined(
        self,
        attempt_id: ExecutionAttemptId,
        checkpoint_id: int,
        reason: CheckpointFailureReason,
        text: str,
    ) -> None:
        self._put(attempt_id, CheckpointDeclined(checkpoint_id, reason, text))

    def data_ended(self, attempt_id: ExecutionAttemptId) -> None:
        self._put(attempt_id, DataEnded())

    def _put(self, attempt_id: ExecutionAttemptId, message: CheckpointMessage) -> None:
        def put() -> None:
            entry = self._tasks.find(attempt_id)
            if entry is not None and entry.outbox.put_checkpoint_message(message):
                self._drain(entry)

        self._endpoint.run_async(put)

    def check_producer(
        self,
        attempt_id: ExecutionAttemptId,
        partition_id: ResultPartitionId,
        answer: AnswerVerdict,
    ) -> None:
        """Ask the JobMaster for the producer's state; if it is gone no answer comes, because the task ends with it."""

        def ask() -> None:
            connection = self._jobs.find(attempt_id.job_id)
            if connection is not None and connection.is_connected:
                self._endpoint.spawn(
                    self._ask_for_producer(connection, partition_id, answer),
                    f"producer of {partition_id}",
                )

        self._endpoint.run_async(ask)

    async def _ask_for_producer(
        self, connection: JobConnection, partition_id: ResultPartitionId, answer: AnswerVerdict
    ) -> None:
        try:
            state = await connection.gateway.request_partition_state(partition_id)
        except (AskTimeoutError, MailboxFullError, RecipientUnreachableError):
            # No answer says nothing about the producer.
            answer(ProducerVerdict.ASK_AGAIN)
        except HeadraceError:
            answer(ProducerVerdict.FAIL)
        else:
            answer(verdict_on(state))

    def _state_changed(
        self, attempt_id: ExecutionAttemptId, state: ExecutionState, error: BaseException | None
    ) -> None:
        entry = self._tasks.find(attempt_id)
        if entry is None or entry.has_ended or state is ExecutionState.DEPLOYING:
            return  # the JobMaster itself started DEPLOYING
        metrics: TaskMetrics | None = None
        if state.is_terminal:
            last = entry.metrics()
            metrics = entry.last_metrics = TaskMetrics(
                attempt_id, without_rates(last.values), last.counters
            )
            entry.mark_ended()
            self._metric_groups.close(attempt_id)
        where = f"task '{entry.display_name}'"
        info = None if error is None else error_info_of(error, where)
        if state is ExecutionState.FAILED and info is not None:
            # For the log file: at the terminal the JobMaster reports failures.
            _LOG.info(
                "%s has failed in attempt %d: %s\n%s",
                where,
                attempt_id.attempt_number,
                info.text,
                info.remote_traceback,
            )
        if state.is_terminal and entry.outbox.is_closed:
            # Its JobMaster is gone, or no longer listens; deployment reports show the end.
            self._on_gone(entry)
        elif entry.outbox.put_report(ExecutionReport(attempt_id, state, info, metrics)):
            self._drain(entry)

    def _drain(self, entry: TaskEntry) -> None:
        connection = self._jobs.find(entry.attempt_id.job_id)
        if connection is None or not connection.is_connected:
            return
        self._endpoint.spawn(self._tell(entry, connection), f"reports of {entry.attempt_id}")

    async def _tell(self, entry: TaskEntry, connection: JobConnection) -> None:
        while not entry.outbox.is_empty:
            try:
                await entry.outbox.drain(connection.gateway, connection.pause)
            except UnknownAttemptError as error:
                entry.outbox.close()
                self._tasks.fail_task(entry, error)
            except HeadraceError as error:
                # The JobMaster refuses the task's report: the task is useless now.
                entry.outbox.skip()
                self._tasks.fail_task(entry, error)
        if entry.has_ended:
            self._on_gone(entry)
