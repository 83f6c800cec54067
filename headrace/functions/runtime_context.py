"""RuntimeContext: gives a user function in `open` its subtask's facts, its metrics and its keyed state."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Protocol

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
    """Part of `headrace.metrics.MetricGroup` that user functions may call."""

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


class RuntimeContext(KeyedStateStore):
    """Given to `open`; valid for the life of the function."""

    @abstractmethod
    def get_task_name(self) -> str:
        """Name of the vertex."""

    @abstractmethod
    def get_number_of_parallel_subtasks(self) -> int:
        """Parallelism."""

    @abstractmethod
    def get_max_number_of_parallel_subtasks(self) -> int:
        """Number of key groups."""

    @abstractmethod
    def get_index_of_this_subtask(self) -> int:
        """From 0."""

    @abstractmethod
    def get_attempt_number(self) -> int:
        """From 0; grows by one with every restart."""

    @abstractmethod
    def get_task_name_with_subtasks(self) -> str:
        """`name (1/4)#0`: subtask from 1, parallelism, attempt."""

    @abstractmethod
    def get_job_parameter(self, key: str, default_value: str) -> str:
        """Value of a global job parameter."""

    @abstractmethod
    def get_metrics_group(self) -> UserMetricGroup:
        """Return the group in which the function registers its own metrics."""

    @abstractmethod
    def get_operator_state_store(self) -> OperatorStateStore:
        """States of this subtask as a whole: lists that are split or united, and broadcast maps."""
