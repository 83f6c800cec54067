"""In-memory contexts for triggers and assigners."""

from collections.abc import Callable
from typing import Any

from headrace.core.elements import MIN_TIMESTAMP
from headrace.functions.state import (
    ReducingState,
    ReducingStateDescriptor,
    StateDescriptor,
    ValueState,
    ValueStateDescriptor,
)
from headrace.functions.windowing.assigners import WindowAssignerContext
from headrace.functions.windowing.triggers import OnMergeContext


class OneValue(ValueState[Any]):
    def __init__(self) -> None:
        self.held: Any = None

    def value(self) -> Any:
        return self.held

    def update(self, value: Any) -> None:
        self.held = value

    def clear(self) -> None:
        self.held = None


class OneReducedValue(ReducingState[Any]):
    def __init__(self, reduce: Callable[[Any, Any], Any]) -> None:
        self.reduce = reduce
        self.held: Any = None

    def get(self) -> Any:
        return self.held

    def add(self, value: Any) -> None:
        self.held = value if self.held is None else self.reduce(self.held, value)

    def clear(self) -> None:
        self.held = None


class WindowTimers(OnMergeContext):
    """Timers and state of one window; `merged_values` is what merged windows held."""

    def __init__(self) -> None:
        self.watermark = MIN_TIMESTAMP
        self.now = 0
        self.event_timers: set[int] = set()
        self.processing_timers: set[int] = set()
        self.states: dict[str, OneReducedValue | OneValue] = {}
        self.merged_values: list[Any] = []

    def get_current_processing_time(self) -> int:
        return self.now

    def get_metric_group(self) -> Any:
        raise AssertionError("no trigger of ours measures")

    def get_current_watermark(self) -> int:
        return self.watermark

    def register_processing_time_timer(self, time: int) -> None:
        self.processing_timers.add(time)

    def register_event_time_timer(self, time: int) -> None:
        self.event_timers.add(time)

    def delete_processing_time_timer(self, time: int) -> None:
        self.processing_timers.discard(time)

    def delete_event_time_timer(self, time: int) -> None:
        self.event_timers.discard(time)

    def get_partitioned_state(self, state_descriptor: StateDescriptor) -> Any:
        if isinstance(state_descriptor, ValueStateDescriptor):
            return self.states.setdefault(state_descriptor.name, OneValue())
        assert isinstance(state_descriptor, ReducingStateDescriptor)
        reduce = state_descriptor.get_reduce_function().reduce
        return self.states.setdefault(state_descriptor.name, OneReducedValue(reduce))

    def merge_partitioned_state(self, state_descriptor: StateDescriptor) -> None:
        for value in self.merged_values:
            self.get_partitioned_state(state_descriptor).add(value)

    @property
    def is_empty(self) -> bool:
        held = [state for state in self.states.values() if state.held is not None]
        return not (self.event_timers or self.processing_timers or held)


class AssignerSurroundings(WindowAssignerContext):
    """A clock, one value state that stands for the current key's, and the name of a subtask."""

    def __init__(self, now: int = 0, subtask_index: int = 0) -> None:
        self.now = now
        self.state = OneValue()
        self.subtask_index = subtask_index

    def get_current_processing_time(self) -> int:
        return self.now

    def get_runtime_context(self) -> Any:
        return self

    def get_state(self, state_descriptor: StateDescriptor) -> OneValue:
        return self.state

    def get_task_name(self) -> str:
        return "windows"

    def get_index_of_this_subtask(self) -> int:
        return self.subtask_index
