"""Interfaces through which a scheduler acts on its JobMaster and on the job's TaskManagers."""

from collections.abc import Callable, Sequence
from typing import Protocol

from headrace.cluster.job_master.executions.executions import Execution
from headrace.cluster.job_master.failover.failure_history import Failure
from headrace.cluster.job_master.scheduler.deployment_plan import PartitionRegistration
from headrace.core.ids import ClusterDataSetId, ExecutionVertexId, ResourceId, ResultPartitionId
from headrace.core.lifecycle import JobStatus
from headrace.core.shuffle_descriptors import ShuffleDescriptor, TaskManagerLocation
from headrace.gateways.task_executor import TaskDeploymentDescriptor


class TaskManagerCalls(Protocol):
    """Calls of the scheduler to registered TaskManagers; every call returns at once."""

    def location_of(self, resource_id: ResourceId) -> TaskManagerLocation:
        """Return the location of the TaskManager's data plane."""
        ...

    def submit_task(self, execution: Execution, descriptor: TaskDeploymentDescriptor) -> None:
        """Ask it to run the task; answers with `Scheduler.submit_answered`."""
        ...

    def cancel_task(self, execution: Execution) -> None:
        """Ask it to cancel the task."""
        ...

    def release_partitions(
        self, resource_id: ResourceId, partition_ids: tuple[ResultPartitionId, ...]
    ) -> None:
        """Have it delete stored results."""
        ...


class SchedulerShell(Protocol):
    """Services of the JobMaster for the scheduler of a job; every method returns at once."""

    @property
    def task_managers(self) -> TaskManagerCalls:
        """Those that work for the job."""
        ...

    def restore(self, scope: frozenset[ExecutionVertexId], version: int) -> None:
        """Find out what these subtasks start from.

        Answers with `Scheduler.restored` or `Scheduler.fail_job`.
        """
        ...

    def declare_slots(self) -> None:
        """Tell the ResourceManager the pool's whole requirements."""
        ...

    def await_slots(self) -> None:
        """Tell the ResourceManager the pool's whole requirements, and begin to wait for slots, anew."""
        ...

    def find_inputs(self, data_sets: Sequence[ClusterDataSetId], version: int) -> None:
        """Ask the ResourceManager where data sets of earlier jobs lie.

        Answers with `Scheduler.inputs_found` or `Scheduler.lookup_failed`.
        """
        ...

    def release_data_set(self, data_set: ClusterDataSetId) -> None:
        """Have the cluster give up a data set that cannot be read."""
        ...

    def register_partitions(
        self, registrations: Sequence[PartitionRegistration], version: int
    ) -> None:
        """Tell the shuffle master of partitions.

        Answers with `Scheduler.partitions_registered`, in the same order, or `Scheduler.registration_failed`.
        """
        ...

    def release_externally(self, descriptors: Sequence[ShuffleDescriptor]) -> None:
        """Have the shuffle master delete external partitions."""
        ...

    def schedule_run_async(self, delay_ms: float, action: Callable[[], None]) -> object:
        """Run `action` on the main thread after `delay_ms`."""
        ...

    def restarts(self, cause: Failure, delay_ms: float, restart_count: int) -> None:
        """A restart follows a failure, after so many milliseconds: the user is told."""
        ...

    def commit(self) -> None:
        """Let the coordinators finish; answers with `Scheduler.committed` or `Scheduler.fail_job`."""
        ...

    def execution_changed(self, execution: Execution) -> None:
        """An execution changed its state."""
        ...

    def status_changed(self, status: JobStatus) -> None:
        """The job changed its status; for a terminal one, release everything."""
        ...
