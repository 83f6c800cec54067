"""ExecutionFailureHandler: records failures, and decides whether and which subtasks restart.

Main thread of the JobMaster. Source: Flink ExecutionFailureHandler.
"""

from collections.abc import Callable
from typing import Final

from headrace.cluster.job_master.executions import Executions
from headrace.cluster.job_master.failover.failover_strategies import create_failover_strategy
from headrace.cluster.job_master.failover.failure_history import (
    EXCEPTION_HISTORY_SIZE,
    SAME_ERROR_RESTARTS,
    FailedTask,
    Failure,
    FailureHistory,
)
from headrace.cluster.job_master.failover.restart_strategies import RestartStrategy
from headrace.cluster.job_master.results.partition_tracker import PartitionTracker
from headrace.core.clock import Clock
from headrace.core.config import Settings
from headrace.core.ids import ExecutionVertexId
from headrace.graph.execution_graph import ExecutionEdge, ExecutionGraph


class ExecutionFailureHandler:
    """Handles the failures of one Scheduler with its restart and failover strategies."""

    def __init__(
        self,
        graph: ExecutionGraph,
        executions: Executions,
        partitions: PartitionTracker,
        strategy: RestartStrategy,
        clock: Clock,
        settings: Settings,
        on_restart: Callable[[Failure, float, int], None],
    ) -> None:
        """Set up the handler; `on_restart(cause, pause_ms, number)` is called once for every restart."""
        self._job_graph: Final = graph.job_graph
        self._executions: Final = executions
        self._partitions: Final = partitions
        self._clock: Final = clock
        self._failover: Final = create_failover_strategy(settings, graph)
        self._on_restart: Final = on_restart
        # Pause of a restart that is not reported yet, because only a consequence of its cause is known.
        self._untold_delay_ms: float | None = None
        self._final_savepoint = ""
        self.history: Final = FailureHistory(
            strategy,
            settings.get_option(EXCEPTION_HISTORY_SIZE),
            settings.get_option(SAME_ERROR_RESTARTS),
        )
        """Failures so far; read-only."""

    def stopped_with(self, savepoint_uri: str) -> None:
        """Record that the savepoint which stops the job is complete: every later failure is final."""
        self._final_savepoint = savepoint_uri

    def decide(self, failure: Failure) -> float | None:
        """Remember `failure`; return the pause before a restart in ms, or None if it is final."""
        failure = self._as_final_after_savepoint(failure)
        monotonic_ms, now_ms = self._clock.monotonic_ms(), self._clock.now_ms()
        delay_ms = self.history.decide(
            failure,
            monotonic_ms,
            now_ms,
            self._task_of(failure),
            self._executions.running_since_ms,
        )
        self._untold_delay_ms = delay_ms
        self._tell_cause()
        return delay_ms

    def checkpoint_completed(self, position: bytes, triggered_ms: int) -> None:
        """Record a checkpoint that counts as progress, with the source position `position`."""
        since_ms = self._executions.running_since_ms
        if since_ms is not None:
            self.history.checkpoint_completed(position, triggered_ms, since_ms)

    def forbid_restart(self) -> None:
        """Make the failure that is being restarted from final, because the final savepoint is complete."""
        cause = self.history.cause
        assert cause is not None and self._final_savepoint
        self.history.forbid_restart(cause.after_savepoint(self._final_savepoint))

    def refine(self, failure: Failure) -> None:
        """Take a later report, which may name the cause of the remembered failure."""
        failure = self._as_final_after_savepoint(failure)
        self.history.refine(failure, self._clock.now_ms(), self._task_of(failure))
        if failure.is_final or not failure.error.recoverable:
            self.not_restarting()
        self._tell_cause()

    def restarting(self) -> None:
        """Report the cause known so far, because the pause is over."""
        if self._untold_delay_ms is not None:
            self._tell(0)

    def not_restarting(self) -> None:
        """Record that the job ends instead of restarting."""
        self._untold_delay_ms = None

    def _tell_cause(self) -> None:
        cause = self.history.cause
        if self._untold_delay_ms is not None and cause is not None and not cause.is_consequence:
            self._tell(self._untold_delay_ms)

    def _tell(self, delay_ms: float) -> None:
        assert self.history.cause is not None
        self._untold_delay_ms = None
        self._on_restart(self.history.cause, delay_ms, self.history.restart_count)

    def subtasks_to_restart(
        self, failure: Failure, scope: frozenset[ExecutionVertexId]
    ) -> frozenset[ExecutionVertexId]:
        """Return the subtasks that restart for `failure`, together with `scope`, which restarts anyway."""
        if failure.attempt_id is None:
            return self._executions.subtasks
        if failure.error.lost_partition:
            self._partitions.lose(failure.error.lost_partition)
        tracked = self._partitions.tracked

        def is_available(edge: ExecutionEdge, partition_number: int) -> bool:
            return self._executions.partition_id_of(edge, partition_number) in tracked

        failed = {failure.attempt_id.execution_vertex_id} | scope
        return self._failover.subtasks_to_restart(failed, is_available)

    def _as_final_after_savepoint(self, failure: Failure) -> Failure:
        if self._final_savepoint:
            return failure.after_savepoint(self._final_savepoint)
        return failure

    def _task_of(self, failure: Failure) -> FailedTask | None:
        return FailedTask.of(failure, self._job_graph, self._executions)
