"""OperatorCoordinatorHandler: connects a job's operator coordinators with its scheduler and its TaskManagers.

It calls the TaskManagers, and fails the job with whatever a coordinator raises. Runs on the JobMaster's main thread.
Source: Flink DefaultOperatorCoordinatorHandler.
"""

import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final

from headrace.cluster.error_reports import error_info_of
from headrace.cluster.job_master.connections.task_managers import TaskManagers
from headrace.cluster.job_master.coordinators.event_delivery import EventDelivery
from headrace.cluster.job_master.coordinators.operator_coordinator import CoordinatorFactories
from headrace.cluster.job_master.coordinators.operator_coordinators import OperatorCoordinators
from headrace.cluster.job_master.executions import Execution
from headrace.cluster.job_master.failover.failure_history import Failure
from headrace.cluster.job_master.scheduler.scheduler import Scheduler
from headrace.core.clock import Cancellable
from headrace.core.config import Settings
from headrace.core.errors import HeadraceError
from headrace.core.ids import ExecutionAttemptId, ExecutionVertexId, OperatorId
from headrace.core.lifecycle import ExecutionState
from headrace.core.threads import BlockingRunner
from headrace.gateways.errors import NothingCollectedError, UnknownAttemptError
from headrace.gateways.job_master import CollectedResults
from headrace.rpc.endpoint import RpcEndpoint

_LOG = logging.getLogger(__name__)


class OperatorCoordinatorHandler:
    """Connects the coordinators of one JobMaster. `settings` are the job's over the cluster's.

    Implements LaterCalls.
    """

    def __init__(
        self,
        endpoint: RpcEndpoint,
        scheduler: Scheduler,
        task_managers: TaskManagers,
        factories: CoordinatorFactories,
        settings: Settings,
        run_blocking: BlockingRunner,
    ) -> None:
        self._run_blocking: Final = run_blocking
        self._endpoint: Final = endpoint
        self._scheduler: Final = scheduler
        self._task_managers: Final = task_managers
        self._delivery: Final = EventDelivery(
            endpoint,
            task_managers.send_event,
            lambda: self.coordinators.everything_arrived(),
            self._refused,
        )
        self.coordinators: Final = OperatorCoordinators(
            scheduler.graph,
            factories,
            settings=settings,
            send_event=self._send_event,
            run_async=endpoint.run_async,
            fail_job=self._fail_job_later,
            later=self,
            has_all_arrived=lambda: self._delivery.is_quiet,
            clock=endpoint.clock,
        )

    def handle_event(
        self,
        attempt_id: ExecutionAttemptId,
        operator_id: OperatorId,
        sequence_number: int,
        payload: bytes,
    ) -> None:
        """Deliver an event of a task. UnknownAttemptError unless the attempt is the current one and has not ended."""
        execution = self._scheduler.executions.find(attempt_id)
        if execution is None or execution.state.is_terminal:
            raise UnknownAttemptError(str(attempt_id))
        self.coordinators.handle_event(attempt_id, operator_id, sequence_number, payload)

    def fetch_collected(
        self, operator_id: OperatorId, offset: int, max_piece_count: int
    ) -> CollectedResults:
        """Return the records of a collect sink from `offset` on.

        NothingCollectedError if the operator is not a collect sink.
        """
        coordinator = self.coordinators.collect_coordinators().get(operator_id)
        if coordinator is None:
            raise NothingCollectedError(str(self._scheduler.graph.job_id), str(operator_id))
        return coordinator.fetch(offset, max_piece_count)

    def execution_changed(self, execution: Execution) -> None:
        """Notify coordinators of an execution's new state, so that they know which attempts can take events."""
        attempt_id, slot = execution.attempt_id, execution.slot
        if execution.state.is_terminal:
            self._delivery.attempt_ended(attempt_id)
        try:
            if execution.state is ExecutionState.RUNNING and slot is not None:
                location = self._task_managers.location_of(slot.resource_id)
                self.coordinators.subtask_ready(attempt_id, location)
            elif execution.state in (ExecutionState.FAILED, ExecutionState.CANCELED):
                self.coordinators.subtask_failed(attempt_id)
        except Exception as error:
            self._fail_job(error)

    def commit(self, others: Callable[[], Awaitable[None]]) -> None:
        """Run `others`, then let all coordinators finish; then call the scheduler's `committed` or `fail_job`."""
        self._endpoint.spawn(self._commit(others), "commit")

    def schedule(self, delay_ms: float, action: Callable[[], None], /) -> Cancellable:
        return self._endpoint.schedule_run_async(delay_ms, lambda: self._guarded(action))

    def call_blocking(
        self,
        name: str,
        work: Callable[[], Any],
        handler: Callable[[Any, BaseException | None], None],
        /,
    ) -> None:
        self._endpoint.spawn(self._call_blocking(name, work, handler), name)

    async def _call_blocking(
        self,
        name: str,
        work: Callable[[], Any],
        handler: Callable[[Any, BaseException | None], None],
    ) -> None:
        result, failure = None, None
        try:
            result = await self._run_blocking(name, work)
        except Exception as error:
            failure = error
        self._guarded(lambda: handler(result, failure))

    def _guarded(self, action: Callable[[], None]) -> None:
        try:
            action()
        except Exception as error:
            self._fail_job(error)

    async def close(self) -> None:
        """Close all coordinators, even after errors."""
        for error in await self.coordinators.close():
            job_id = self._scheduler.graph.job_id
            _LOG.warning("could not close a coordinator of job %s: %s", job_id, error)

    async def _commit(self, others: Callable[[], Awaitable[None]]) -> None:
        try:
            await others()
            await self.coordinators.commit()
        except Exception as error:
            self._fail_job(error)
        else:
            self._scheduler.committed()

    def _send_event(
        self, subtask: ExecutionVertexId, operator_id: OperatorId, payload: bytes
    ) -> None:
        execution = self._scheduler.executions.current(subtask)
        if execution.slot is not None and not execution.state.is_terminal:
            self._delivery.send(execution.attempt_id, operator_id, payload)

    def _refused(self, attempt_id: ExecutionAttemptId, error: HeadraceError) -> None:
        execution = self._scheduler.executions.find(attempt_id)
        if execution is not None:
            self._scheduler.lose(execution, error_info_of(error))

    def _fail_job(self, error: BaseException) -> None:
        self._scheduler.fail_job(Failure.of_error(error))

    def _fail_job_later(self, error: BaseException) -> None:
        """Fail the job later on the main thread, never inside a handler of the scheduler; from any thread."""
        self._endpoint.run_async(lambda: self._fail_job(error))
