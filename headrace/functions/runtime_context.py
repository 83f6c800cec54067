"""RuntimeContext: gives a user function the facts of its subtask, its metrics and its keyed state, in `open`.

SubtaskContext gives a source reader or sink writer the same facts, with a ProcessingTimeService, which calls
back on the mailbox thread at a wall-clock time.

Source: Flink RuntimeContext, ProcessingTimeService.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from headrace.core.clock import Clock
from headrace.core.config import Settings
from headrace.core.ids import ExecutionAttemptId, OperatorId
from headrace.core.operator_spec import OperatorTypes
from headrace.functions.ingest import IngestDoor
from headrace.functions.state import (
    AggregatingState,
    AggregatingStateDescriptor,
    ListState,
    ListStateDescriptor,
    MapState,
    MapStateDescriptor,
    OperatorStateStore,
    ReducingState,
    ReducingStateDescriptor,
    ValueState,
    ValueStateDescriptor,
)


class UserMetricGroup(Protocol):
    """Methods of `headrace.metrics.MetricGroup` that user functions may call."""

    def add_group(self, name: str, extra: str | None = None) -> "UserMetricGroup":
        """Return a sub-group: `name`, or `name` and `extra` as key and value."""
        ...

    def counter(self, name: str) -> Any: ...
    def gauge(self, name: str, obj: Callable[[], int]) -> None: ...
    def meter(self, name: str, time_span_in_seconds: int = 60) -> Any: ...
    def distribution(self, name: str) -> Any: ...


class KeyedStateStore(ABC):
    """State of the current key. The same descriptor gives the same handle, which follows the key."""

    @abstractmethod
    def get_state(self, state_descriptor: ValueStateDescriptor) -> ValueState[Any]: ...

    @abstractmethod
    def get_list_state(self, state_descriptor: ListStateDescriptor) -> ListState[Any]: ...

    @abstractmethod
    def get_map_state(self, state_descriptor: MapStateDescriptor) -> MapState[Any, Any]: ...

    @abstractmethod
    def get_reducing_state(
        self, state_descriptor: ReducingStateDescriptor
    ) -> ReducingState[Any]: ...

    @abstractmethod
    def get_aggregating_state(
        self, state_descriptor: AggregatingStateDescriptor
    ) -> AggregatingState[Any, Any]: ...


class DistributedCache:
    """Files shipped with the job, by name. Source: Flink DistributedCache."""

    def __init__(self, paths: Mapping[str, str]) -> None:
        self._paths: Final = paths

    def get_file(self, name: str) -> str:
        """Return the local path of a cached file, or of the folder of an archive. KeyError lists the names."""
        if name not in self._paths:
            known = ", ".join(sorted(self._paths)) or "none"
            raise KeyError(
                f"no file called '{name}' was shipped with the job; its files are: {known}"
            )
        return self._paths[name]


@dataclass(frozen=True)
class ExternalResourceInfo:
    """One external resource of a TaskManager, such as a GPU, by its address on the host (`0` for the first GPU).

    Source: Flink ExternalResourceInfo, GPUInfo.
    """

    address: str

    def get_property(self, key: str) -> str | None:
        """Return the address for the key `index`, and None for any other."""
        return self.address if key == "index" else None

    def get_keys(self) -> set[str]:
        return {"index"}


class RuntimeContext(KeyedStateStore):
    """Context passed to `open`; valid for the life of the function."""

    @abstractmethod
    def get_task_name(self) -> str:
        """Return the name of the vertex."""

    @abstractmethod
    def get_number_of_parallel_subtasks(self) -> int:
        """Return the parallelism."""

    @abstractmethod
    def get_max_number_of_parallel_subtasks(self) -> int:
        """Return the number of key groups."""

    @abstractmethod
    def get_index_of_this_subtask(self) -> int:
        """Return the subtask's index, from 0."""

    @abstractmethod
    def get_attempt_number(self) -> int:
        """Return the attempt's number, from 0; it grows by one with every restart."""

    @abstractmethod
    def get_task_name_with_subtasks(self) -> str:
        """Return `name (1/4)#0`: subtask from 1, parallelism, attempt."""

    @abstractmethod
    def get_job_parameter(self, key: str, default_value: str) -> str:
        """Return the value of a global job parameter."""

    @abstractmethod
    def get_distributed_cache(self) -> DistributedCache:
        """Return the files of `register_cached_file` and the folders of `add_python_archive`."""

    @abstractmethod
    def get_external_resource_infos(self, resource_name: str) -> set[ExternalResourceInfo]:
        """Return this subtask's TaskManager's units of an external resource; empty if it has none."""

    @abstractmethod
    def get_metrics_group(self) -> UserMetricGroup:
        """Return the group in which the function registers its own metrics."""

    @abstractmethod
    def get_operator_state_store(self) -> OperatorStateStore:
        """Return states of this subtask as a whole: lists that are split or united, and broadcast maps."""


class ScheduledTimer(Protocol):
    """A processing-time timer that may be cancelled."""

    def cancel(self) -> None:
        """Prevent the callback; no effect once it has run."""
        ...


class ProcessingTimeService(Protocol):
    """Calls back on the mailbox thread, between batches and parts of them, at or after a wall-clock time."""

    def now_ms(self) -> int:
        """Return current processing time, epoch ms."""
        ...

    def schedule(self, time_ms: int, callback: Callable[[int], None]) -> ScheduledTimer:
        """Run `callback(time_ms)` as a mail once `now_ms() >= time_ms`; never after the task has finished."""
        ...


class SubtaskContext(Protocol):
    """The part of the operator's context that connectors use; the runtime's own context has more members.

    `types` are the types of the stream, which emitted or written batches have. `ingest` is the TaskManager's registry
    for pushed data, or None if there is none.
    """

    @property
    def operator_id(self) -> OperatorId: ...
    @property
    def operator_name(self) -> str: ...
    @property
    def subtask_index(self) -> int: ...
    @property
    def parallelism(self) -> int: ...
    @property
    def attempt_number(self) -> int: ...
    @property
    def types(self) -> OperatorTypes: ...
    @property
    def settings(self) -> Settings: ...
    @property
    def clock(self) -> Clock: ...
    @property
    def timers(self) -> ProcessingTimeService: ...
    @property
    def ingest(self) -> IngestDoor | None: ...
    @property
    def attempt_id(self) -> ExecutionAttemptId | None: ...

    def send_event(self, payload: bytes, /) -> None:
        """Send an event to the coordinator in the JobMaster; mailbox thread only."""
        ...

    def wake(self) -> None:
        """Make the task poll the reader again; any thread."""
        ...
