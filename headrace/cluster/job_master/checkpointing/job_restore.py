"""JobRestore: restores subtasks and coordinators, at the start of a job and after every failure.

No task is deployed before all output of the restored checkpoint is committed, so that tasks may rely on it.
Runs on the JobMaster's main thread. Source: Flink CheckpointCoordinator.restoreLatestCheckpointedState.
"""

import logging
from collections.abc import Mapping
from typing import Final

from headrace.checkpoint.handles import SubtaskRestore
from headrace.checkpoint.metadata import CompletedCheckpoint, OperatorSnapshot
from headrace.checkpoint.options import IGNORE_UNCLAIMED_STATE, WITHOUT_CHANNEL_STATE
from headrace.cluster.job_master.checkpointing.assignment.state_assignment import (
    StateAssignment,
    assign_state,
)
from headrace.cluster.job_master.checkpointing.job_lineage import JobLineage
from headrace.cluster.job_master.coordinators.operator_coordinator_handler import (
    OperatorCoordinatorHandler,
)
from headrace.cluster.job_master.failover.failure_history import Failure
from headrace.cluster.job_master.job_notices import JobNotices
from headrace.cluster.job_master.scheduler.scheduler import Scheduler
from headrace.core.config import Settings, bytes_text
from headrace.core.ids import ExecutionVertexId, OperatorId
from headrace.rpc.endpoint import RpcEndpoint

_LOG = logging.getLogger(__name__)


class JobRestore:
    """Restores the tasks of one JobMaster. `settings` are the job's over the cluster's; `notices` report lost state."""

    def __init__(
        self,
        endpoint: RpcEndpoint,
        scheduler: Scheduler,
        coordination: OperatorCoordinatorHandler,
        lineage: JobLineage,
        settings: Settings,
        notices: JobNotices,
    ) -> None:
        self._endpoint: Final = endpoint
        self._scheduler: Final = scheduler
        self._coordination: Final = coordination
        self._lineage: Final = lineage
        self._notices: Final = notices
        self._ignores_unclaimed: Final = settings.get_option(IGNORE_UNCLAIMED_STATE)
        self._without_channel_state: Final = settings.get_option(WITHOUT_CHANNEL_STATE)
        self._has_recovered = False

    def restore(self, scope: frozenset[ExecutionVertexId], version: int) -> None:
        """Restore these subtasks, then call `Scheduler.restored`, or fail the job."""
        self._endpoint.spawn(self._restore(scope, version), "restore")

    async def _restore(self, scope: frozenset[ExecutionVertexId], version: int) -> None:
        is_first = not self._has_recovered
        self._has_recovered = True
        try:
            lineage = self._lineage
            restored = await (lineage.recover() if is_first else lineage.latest())
            if not self._scheduler.awaits_restore(version):
                # Another failure or request came first, and starts its own restore.
                return
            assignment = self._assign(restored)
            if restored is not None and assignment is not None and is_first:
                self._tell_lost(restored, assignment)
                self._scheduler.adopt(assignment.graph)
            self._reset_coordinators(restored, assignment, scope, is_first=is_first)
        except Exception as error:
            what = "start" if is_first else "be restored"
            if is_first and not getattr(error, "recoverable", True):
                self._lineage.refused()
            _LOG.warning("job %s cannot %s: %s", self._scheduler.graph.job_id, what, error)
            self._scheduler.fail_job(Failure.of_error(error))
        else:
            restores: Mapping[ExecutionVertexId, SubtaskRestore] = {}
            self._scheduler.restored(assignment.subtasks if assignment else restores, version)

    def _assign(self, restored: CompletedCheckpoint | None) -> StateAssignment | None:
        if restored is None:
            return None
        graph = self._scheduler.graph
        _LOG.info(
            "job %s starts from checkpoint %d (%s)",
            graph.job_id, restored.checkpoint_id, restored.uri or "in memory",
        )  # fmt: skip
        metadata = restored.metadata
        if restored.checkpoint_id == self._without_channel_state:
            metadata = metadata.without_channel_state()
        return assign_state(graph, metadata, ignores_unclaimed=self._ignores_unclaimed)

    def _tell_lost(self, restored: CompletedCheckpoint, assignment: StateAssignment) -> None:
        name, checkpoint_id = self._scheduler.graph.name, restored.checkpoint_id
        if checkpoint_id == self._without_channel_state:
            self._notices.tell(
                "in flight",
                f"job '{name}' leaves out the in-flight data of checkpoint {checkpoint_id}: those records are lost",
            )
        if assignment.left_behind:
            without_state = "".join(
                f"; '{operator.name}' (uid '{operator.uid}') starts without state"
                for operator in assignment.without_state
            )
            self._notices.tell(
                "left behind",
                f"job '{name}' starts from checkpoint {checkpoint_id} without the state of "
                f"{', '.join(map(_described, assignment.left_behind))}, because no operator has its uid or id and "
                f"{IGNORE_UNCLAIMED_STATE.key} is set{without_state}",
            )

    def _reset_coordinators(
        self,
        restored: CompletedCheckpoint | None,
        assignment: StateAssignment | None,
        scope: frozenset[ExecutionVertexId],
        *,
        is_first: bool,
    ) -> None:
        """Reset all coordinators if all subtasks restart; otherwise notify them of the restarting subtasks."""
        checkpoint_id = None if restored is None else restored.checkpoint_id
        coordinators = self._coordination.coordinators
        if scope != self._scheduler.executions.subtasks:
            for subtask in sorted(scope):
                coordinators.subtask_reset(subtask, checkpoint_id)
        elif restored is not None or not is_first:
            states: Mapping[OperatorId, bytes] = {}
            coordinators.reset(
                checkpoint_id, assignment.coordinator_states if assignment else states
            )
        if is_first:
            coordinators.start()


def _described(operator: OperatorSnapshot) -> str:
    rows = "" if operator.row_count is None else f"{operator.row_count} rows, "
    return f"{operator.title}: {rows}{bytes_text(operator.size_bytes)}"
