"""JobRestore: what subtasks and coordinators start from, at the job's begin and after every failure.

Nothing is deployed before all output of the restored checkpoint is committed: what runs afterwards may rely on it.
Runs on the JobMaster's main thread. Source: Flink CheckpointCoordinator.restoreLatestCheckpointedState.
"""

import logging
from collections.abc import Mapping
from typing import Final

from headrace.checkpoint.handles import SubtaskRestore
from headrace.checkpoint.metadata import CompletedCheckpoint
from headrace.checkpoint.options import IGNORE_UNCLAIMED_STATE, WITHOUT_CHANNEL_STATE
from headrace.cluster.job_master.checkpointing.lineage import CheckpointLineage
from headrace.cluster.job_master.checkpointing.state_assignment import (
    StateAssignment,
    assign_state,
    without_channel_state,
)
from headrace.cluster.job_master.failover import Failure
from headrace.cluster.job_master.job_coordination import JobCoordination
from headrace.cluster.job_master.scheduling import Scheduler
from headrace.core.config import Settings
from headrace.core.ids import ExecutionVertexId, OperatorId
from headrace.rpc.endpoint import RpcEndpoint

_LOG = logging.getLogger(__name__)


class JobRestore:
    """One per JobMaster. `settings` are the job's over the cluster's."""

    def __init__(
        self,
        endpoint: RpcEndpoint,
        scheduler: Scheduler,
        coordination: JobCoordination,
        lineage: CheckpointLineage,
        settings: Settings,
    ) -> None:
        self._endpoint: Final = endpoint
        self._scheduler: Final = scheduler
        self._coordination: Final = coordination
        self._lineage: Final = lineage
        self._ignores_unclaimed: Final = settings.get_option(IGNORE_UNCLAIMED_STATE)
        self._without_channel_state: Final = settings.get_option(WITHOUT_CHANNEL_STATE)
        self._has_recovered = False

    def restore(self, scope: frozenset[ExecutionVertexId], version: int) -> None:
        """Answers with `Scheduler.restored`, or fails the job."""
        self._endpoint.spawn(self._restore(scope, version), "restore")

    async def _restore(self, scope: frozenset[ExecutionVertexId], version: int) -> None:
        is_first = not self._has_recovered
        self._has_recovered = True
        try:
            lineage = self._lineage
            restored = await (lineage.recover() if is_first else lineage.latest())
            if not self._scheduler.awaits_restore(version):
                # Another failure, or the user, was faster: what follows has its own restore.
                return
            assignment = self._assign(restored)
            if assignment is not None and is_first:
                self._scheduler.adopt(assignment.graph)
            self._reset_coordinators(restored, assignment, scope, is_first=is_first)
        except Exception as error:
            what = "start" if is_first else "be restored"
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
            _LOG.warning(
                "job %s leaves out what was in flight in checkpoint %d: those records are lost",
                graph.job_id, restored.checkpoint_id,
            )  # fmt: skip
            metadata = without_channel_state(metadata)
        assignment = assign_state(graph, metadata, ignores_unclaimed=self._ignores_unclaimed)
        if assignment.left_behind:
            _LOG.warning(
                "job %s starts without the state of operators that it does not have: %s",
                graph.job_id, ", ".join(operator.title for operator in assignment.left_behind),
            )  # fmt: skip
        return assignment

    def _reset_coordinators(
        self,
        restored: CompletedCheckpoint | None,
        assignment: StateAssignment | None,
        scope: frozenset[ExecutionVertexId],
        *,
        is_first: bool,
    ) -> None:
        """All go back where all subtasks do; where others run on, they only hear who starts again."""
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
