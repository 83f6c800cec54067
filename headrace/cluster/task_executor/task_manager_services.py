"""TaskManagerServices: facts and services for a TaskExecutor, and the errors with which it stops tasks."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from headrace.cluster.task_executor.cluster_partitions import StoredPartitions
from headrace.cluster.task_executor.deployment import TaskFactory
from headrace.cluster.task_executor.task_local_state import TaskLocalState
from headrace.core.errors import HeadraceError
from headrace.core.ids import ResourceId
from headrace.core.resource_profile import ResourceProfile
from headrace.core.shuffle_descriptors import TaskManagerLocation
from headrace.core.threads import BlockingRunner
from headrace.gateways.messages import MemoryUsage
from headrace.gateways.resource_manager import HardwareDescription
from headrace.metrics.reporters.registry import MetricRegistry


@dataclass(frozen=True)
class TaskManagerServices:
    """Facts and services for a TaskExecutor.

    `exit_process(reason)` ends the process at once (`os._exit` in a real one): a task cannot be stopped
    otherwise. `on_terminated(reason)` is called once, on the control thread, after a graceful end. `scratch` is the
    directory of this process alone, or None; `log_folder` is where it writes its log, or None.
    `process_metrics()`: the metrics of the process by their full names. Tasks register theirs in `metric_registry`, if
    there is one. `lock_watcher_address()`: the endpoint of the process that watches this one's interpreter lock, or ''.
    `external_resources`: the addresses of those that the host reserves for it, by name. `owns_process`: the process
    belongs to it alone, and ends with it.
    """

    resource_id: ResourceId
    location: TaskManagerLocation
    leader_retrieval_address: str
    slot_count: int
    slot_profile: ResourceProfile
    versions: dict[str, str]
    pid: int
    attempt_number: int
    task_factory: TaskFactory
    run_blocking: BlockingRunner
    exit_process: Callable[[str], None]
    on_terminated: Callable[[str], None]
    partitions: StoredPartitions
    scratch: Path | None = None
    local_copies: TaskLocalState | None = None
    process_metrics: Callable[[], dict[str, float]] = dict[str, float]
    metric_registry: MetricRegistry | None = None
    measure_memory: Callable[[], MemoryUsage | None] = lambda: None
    log_folder: Path | None = None
    lock_watcher_address: Callable[[], str] = str
    hardware: HardwareDescription = field(default_factory=HardwareDescription)
    external_resources: Mapping[str, tuple[str, ...]] = field(
        default_factory=dict[str, tuple[str, ...]]
    )
    owns_process: bool = False


class JobMasterLostError(HeadraceError):
    """A task was stopped because its JobMaster is gone."""

    is_consequence = True


class TaskManagerEndsError(HeadraceError):
    """A task was stopped because its TaskManager ends."""


class SlotReleasedError(HeadraceError):
    """A task was stopped because its slot was taken away."""

    is_consequence = True
