"""TaskMetricGroups: registers the metrics of tasks, and of their operators, in the registry of their TaskManager.

A task's groups are removed when it has ended; its last values are reported once more then, so that no count is lost.
Source: Flink TaskManagerJobMetricGroup, TaskMetricGroup, InternalOperatorMetricGroup.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from headrace.cluster.task_executor.deployment import RunningTask
from headrace.cluster.task_executor.task_manager_services import TaskManagerServices
from headrace.core.ids import ExecutionAttemptId
from headrace.gateways.task_executor import TaskDeploymentDescriptor
from headrace.graph.job_graph import JobVertex
from headrace.metrics.network_names import network_samples
from headrace.metrics.readings import GroupReading
from headrace.metrics.scopes import GroupKind


class TaskMetricGroups:
    """Metric groups of one TaskExecutor, on its main thread; without a registry all methods do nothing."""

    def __init__(self, services: TaskManagerServices) -> None:
        self._registry: Final = services.metric_registry
        self._own: Final = {
            "host": services.location.host,
            "tm_id": str(services.resource_id),
        }

    def open(self, descriptor: TaskDeploymentDescriptor, task: RunningTask) -> None:
        """Report the metrics of a task from now on."""
        if self._registry is None:
            return
        variables = self._own | _variables_of(descriptor)
        vertex = descriptor.vertex
        self._registry.add(descriptor.attempt_id, lambda: _read(task, vertex, variables))

    def close(self, attempt_id: ExecutionAttemptId) -> None:
        """Report the last values of a task that has ended. Idempotent."""
        if self._registry is not None:
            self._registry.remove(attempt_id)


def _variables_of(descriptor: TaskDeploymentDescriptor) -> dict[str, str]:
    attempt_id, vertex = descriptor.attempt_id, descriptor.vertex
    return {
        "job_id": str(attempt_id.job_id),
        "job_name": descriptor.job_name,
        "task_id": str(vertex.vertex_id),
        "task_name": vertex.name,
        "task_attempt_id": str(attempt_id),
        "task_attempt_num": str(attempt_id.attempt_number),
        "subtask_index": str(attempt_id.subtask_index),
    }


def _read(
    task: RunningTask, vertex: JobVertex, variables: Mapping[str, str]
) -> Iterator[GroupReading]:
    samples = task.metric_samples()
    own_samples = (*samples.own, *network_samples(samples.own))
    yield GroupReading(GroupKind.TASK, variables, own_samples)
    for described in vertex.operators:
        own = {
            **variables,
            "operator_id": str(described.operator_id),
            "operator_name": described.name,
        }
        found = samples.operators.get(described.operator_id, ())
        yield GroupReading(GroupKind.OPERATOR, own, found)
