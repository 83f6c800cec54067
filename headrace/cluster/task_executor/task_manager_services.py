"""TaskManagerServices: facts and services that a TaskExecutor is given, and the errors with which it stops tasks."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from headrace.cluster.task_executor.cluster_partitions import NoPartitions, StoredPartitions
from headrace.cluster.task_executor.deployment import TaskFactory
from headrace.core.errors import HeadraceError
from headrace.core.ids import ResourceId, ResourceManagerId
from headrace.core.shuffle_descriptors import TaskManagerLocation
from headrace.core.threads import BlockingRunner
from headrace.gateways.messages import MemoryUsage, ResourceProfile
from headrace.gateways.resource_manager import HardwareDescription
from headrace.metrics.registry import MetricRegistry


@dataclass(frozen=True)
class TaskManagerServices:
    """Facts and services that a TaskExecutor is given.

    `exit_process(reason)` ends the process on the spot (`os._exit` in a real one): a task cannot be stopped
    otherwise. `on_terminated(reason)` is called once, on the control thread, after a graceful end. `scratch` is the
    directory of this process alone, or None where it has none; `log_folder` is where it writes its log, if anywhere.
    `process_metrics()`: those of the process by their full names. Tasks register theirs in `metric_registry`, if there
    is one.
    """

    resource_id: ResourceId
    location: TaskManagerLocation
    resource_manager_address: str
    resource_manager_id: ResourceManagerId
    slot_count: int
    slot_profile: ResourceProfile
    versions: dict[str, str]
    pid: int
    attempt_number: int
    task_factory: TaskFactory
    run_blocking: BlockingRunner
    exit_process: Callable[[str], None]
    on_terminated: Callable[[str], None]
    scratch: Path | None = None
    process_metrics: Callable[[], dict[str, float]] = dict[str, float]
    metric_registry: MetricRegistry | None = None
    partitions: StoredPartitions = field(default_factory=NoPartitions)
    measure_memory: Callable[[], MemoryUsage | None] = lambda: None
    log_folder: Path | None = None
    hardware: HardwareDescription = field(default_factory=HardwareDescription)


class JobMasterLostError(HeadraceError):
    """A task was stopped, because the JobMaster that it belongs to is gone."""

    is_consequence = True


class TaskManagerEndsError(HeadraceError):
    """A task was stopped, because its TaskManager ends."""


class SlotReleasedError(HeadraceError):
    """A task was stopped, because its slot was taken away."""

    is_consequence = True
