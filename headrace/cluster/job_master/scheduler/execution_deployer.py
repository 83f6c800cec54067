"""ExecutionDeployer: deploys executions that have slots to their TaskManagers, and releases their partitions.

Every partition must be registered at the shuffle master before its producer is submitted: descriptors contain the
locations of inputs and outputs. Main thread of the JobMaster. Source: Flink DefaultExecutionDeployer.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final

from headrace.checkpoint.handles import SubtaskRestore
from headrace.cluster.job_master.connections.partition_registrar import PartitionRegistrar
from headrace.cluster.job_master.connections.task_managers import OnSubmitAnswer, TaskManagers
from headrace.cluster.job_master.executions import Execution, Executions
from headrace.cluster.job_master.results.cached_inputs import CachedInputs
from headrace.cluster.job_master.results.partition_tracker import PartitionTracker, ToRelease
from headrace.cluster.job_master.scheduler.deployment_plan import describe_task, partitions_read_by
from headrace.core.ids import ExecutionVertexId, ResultPartitionId
from headrace.core.lifecycle import ExecutionState
from headrace.core.shuffle_descriptors import ShuffleDescriptor
from headrace.graph.execution_graph import ExecutionGraph

Become = Callable[[Execution, ExecutionState], None]
"""Changes an execution's state, and notifies the observers."""


class ExecutionDeployer:
    """Deploys the executions of one Scheduler. `graph` returns the current execution graph: restoring may change it.

    `on_submit_answer(attempt_id, error)` is called when a TaskManager has accepted a task or not.
    """

    def __init__(
        self,
        graph: Callable[[], ExecutionGraph],
        executions: Executions,
        partitions: PartitionTracker,
        cached_inputs: CachedInputs,
        task_managers: TaskManagers,
        registrar: PartitionRegistrar,
        become: Become,
        on_submit_answer: OnSubmitAnswer,
    ) -> None:
        self._graph: Final = graph
        self._executions: Final = executions
        self._partitions: Final = partitions
        self._cached_inputs: Final = cached_inputs
        self._task_managers: Final = task_managers
        self._registrar: Final = registrar
        self._become: Final = become
        self._on_submit_answer: Final = on_submit_answer
        self._shuffle_descriptors: dict[ResultPartitionId, ShuffleDescriptor] = {}

    def partitions_registered(self, descriptors: Sequence[ShuffleDescriptor]) -> None:
        """Record the locations of partitions from the shuffle master."""
        self._shuffle_descriptors |= {each.partition_id: each for each in descriptors}

    def deploy(
        self,
        executions: Iterable[Execution],
        restores: Mapping[ExecutionVertexId, SubtaskRestore],
    ) -> None:
        """Submit these executions in order; those without an entry in `restores` start anew."""
        descriptors = [
            (
                execution,
                describe_task(
                    self._graph(),
                    self._executions,
                    execution,
                    self._shuffle_descriptors,
                    self._cached_inputs,
                    restores.get(execution.attempt_id.execution_vertex_id),
                ),
            )
            for execution in executions
        ]
        for execution, descriptor in descriptors:
            self._become(execution, ExecutionState.DEPLOYING)
            assert execution.slot is not None
            self._partitions.deployed(
                execution.slot.resource_id,
                [p.descriptor for p in descriptor.result_partitions],
                descriptor.vertex.parallelism,
            )
            execution.is_submit_pending = True
            self._task_managers.submit_task(execution, descriptor, self._on_submit_answer)

    def finished(self, consumers: Iterable[ExecutionVertexId]) -> None:
        """Release the inputs of subtasks that no longer need them, unless others read them."""
        for each in consumers:
            consumer = self._executions.current(each)
            inputs = partitions_read_by(self._graph(), self._executions, consumer)
            self._release(self._partitions.consumed(each, inputs))

    def restarted(self, subtasks: Collection[ExecutionVertexId]) -> None:
        """Release and forget the results of the old attempts of subtasks that restart."""
        self._release(self._partitions.restarted(subtasks))
        self._shuffle_descriptors = {
            key: each
            for key, each in self._shuffle_descriptors.items()
            if key.producer.execution_vertex_id not in subtasks
        }

    def _release(self, to_release: ToRelease) -> None:
        for resource_id, partition_ids in to_release.items():
            if resource_id is None:
                self._registrar.release_externally(
                    [self._shuffle_descriptors[key] for key in partition_ids]
                )
            else:
                self._task_managers.release_partitions(resource_id, partition_ids)
