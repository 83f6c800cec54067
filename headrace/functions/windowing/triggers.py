"""Triggers: decide when a window's function is called with its contents, and when the contents are purged.

Some fire once, at the end of a window or at a count; continuous ones fire at every interval of event time or processing
time; ProcessingTimeoutTrigger adds a timeout to another trigger; DeltaTrigger fires when the distance of two records, a
DeltaFunction, exceeds a threshold.

Source: Flink Trigger and its subclasses.
"""

import enum
import operator
from abc import ABC, abstractmethod
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Generic, TypeVar

from headrace.core.elements import MAX_WATERMARK
from headrace.core.types.time_values import Duration, Time, to_millis
from headrace.core.types.type_info import TypeInformation, Types
from headrace.functions.runtime_context import UserMetricGroup
from headrace.functions.state import (
    ReducingState,
    ReducingStateDescriptor,
    StateDescriptor,
    ValueState,
    ValueStateDescriptor,
)
from headrace.functions.windows import CountWindow, GlobalWindow, TimeWindow, Window

T = TypeVar("T")
W = TypeVar("W", bound=Window)


class TriggerResult(enum.Enum):
    """Decision of a trigger on a window: (fire, purge)."""

    CONTINUE = (False, False)
    FIRE_AND_PURGE = (True, True)
    FIRE = (True, False)
    PURGE = (False, True)

    def is_fire(self) -> bool:
        """Return whether the window's function is called."""
        return self.value[0]

    def is_purge(self) -> bool:
        """Return whether the contents are purged."""
        return self.value[1]


class TriggerContext(ABC):
    """Clocks, timers and state of the window for which a trigger is called. Times are epoch ms."""

    @abstractmethod
    def get_current_processing_time(self) -> int: ...

    @abstractmethod
    def get_metric_group(self) -> UserMetricGroup: ...

    @abstractmethod
    def get_current_watermark(self) -> int: ...

    @abstractmethod
    def register_processing_time_timer(self, time: int) -> None: ...

    @abstractmethod
    def register_event_time_timer(self, time: int) -> None: ...

    @abstractmethod
    def delete_processing_time_timer(self, time: int) -> None: ...

    @abstractmethod
    def delete_event_time_timer(self, time: int) -> None: ...

    @abstractmethod
    def get_partitioned_state(self, state_descriptor: StateDescriptor) -> Any:
        """Return the state of that descriptor for the current key and window."""


class OnMergeContext(TriggerContext):
    """Context while windows are merged."""

    @abstractmethod
    def merge_partitioned_state(self, state_descriptor: StateDescriptor) -> None:
        """Merge that state of the merged windows into the new window's."""


class Trigger(ABC, Generic[T, W]):
    """Base of all triggers: called for every record added to a window and for every timer of the window."""

    TriggerContext = TriggerContext
    OnMergeContext = OnMergeContext

    @abstractmethod
    def on_element(
        self, element: T, timestamp: int, window: W, ctx: TriggerContext
    ) -> TriggerResult:
        """Decide after a record was added."""

    @abstractmethod
    def on_processing_time(self, time: int, window: W, ctx: TriggerContext) -> TriggerResult:
        """Decide when a processing-time timer set through the context is due."""

    @abstractmethod
    def on_event_time(self, time: int, window: W, ctx: TriggerContext) -> TriggerResult:
        """Decide when an event-time timer set through the context is due."""

    def can_merge(self) -> bool:
        """Return whether the trigger supports windows that merge."""
        return False

    def on_merge(self, window: W, ctx: OnMergeContext) -> None:
        """Transfer state and timers of merged windows to the new window."""
        raise TypeError(f"{self!r} does not support merging windows")

    @abstractmethod
    def clear(self, window: W, ctx: TriggerContext) -> None:
        """Delete timers and state of a window that is deleted."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class _BuiltInTrigger(Trigger[T, W]):
    """Base class of the triggers below: continues at timers, unless a subclass decides otherwise."""

    def on_processing_time(self, time: int, window: W, ctx: TriggerContext) -> TriggerResult:
        return TriggerResult.CONTINUE

    def on_event_time(self, time: int, window: W, ctx: TriggerContext) -> TriggerResult:
        return TriggerResult.CONTINUE


class EventTimeTrigger(_BuiltInTrigger[T, TimeWindow]):
    """Fires when the watermark passes the end of the window, and again for each late record."""

    @staticmethod
    def create() -> "EventTimeTrigger[Any]":
        return EventTimeTrigger()

    def on_element(
        self, element: T, timestamp: int, window: TimeWindow, ctx: TriggerContext
    ) -> TriggerResult:
        if window.max_timestamp() <= ctx.get_current_watermark():
            return TriggerResult.FIRE
        ctx.register_event_time_timer(window.max_timestamp())
        return TriggerResult.CONTINUE

    def on_event_time(self, time: int, window: TimeWindow, ctx: TriggerContext) -> TriggerResult:
        return TriggerResult.FIRE if time == window.max_timestamp() else TriggerResult.CONTINUE

    def can_merge(self) -> bool:
        return True

    def on_merge(self, window: TimeWindow, ctx: OnMergeContext) -> None:
        # Past the watermark there is nothing to wait for: the record that merged the windows fires by itself.
        if window.max_timestamp() > ctx.get_current_watermark():
            ctx.register_event_time_timer(window.max_timestamp())

    def clear(self, window: TimeWindow, ctx: TriggerContext) -> None:
        ctx.delete_event_time_timer(window.max_timestamp())


class ProcessingTimeTrigger(_BuiltInTrigger[T, TimeWindow]):
    """Fires when processing time passes the end of the window."""

    @staticmethod
    def create() -> "ProcessingTimeTrigger[Any]":
        return ProcessingTimeTrigger()

    def on_element(
        self, element: T, timestamp: int, window: TimeWindow, ctx: TriggerContext
    ) -> TriggerResult:
        ctx.register_processing_time_timer(window.max_timestamp())
        return TriggerResult.CONTINUE

    def on_processing_time(
        self, time: int, window: TimeWindow, ctx: TriggerContext
    ) -> TriggerResult:
        return TriggerResult.FIRE

    def can_merge(self) -> bool:
        return True

    def on_merge(self, window: TimeWindow, ctx: OnMergeContext) -> None:
        if window.max_timestamp() > ctx.get_current_processing_time():
            ctx.register_processing_time_timer(window.max_timestamp())

    def clear(self, window: TimeWindow, ctx: TriggerContext) -> None:
        ctx.delete_processing_time_timer(window.max_timestamp())


class CountTrigger(_BuiltInTrigger[T, CountWindow]):
    """Fires at `window_size` records, keeps the contents and starts counting again."""

    def __init__(self, window_size: int) -> None:
        self.window_size = window_size
        self._count = ReducingStateDescriptor("count", operator.add, Types.LONG())

    @staticmethod
    def of(window_size: int) -> "CountTrigger[Any]":
        return CountTrigger(window_size)

    def on_element(
        self, element: T, timestamp: int, window: CountWindow, ctx: TriggerContext
    ) -> TriggerResult:
        state: ReducingState[int] = ctx.get_partitioned_state(self._count)
        state.add(1)
        if (state.get() or 0) < self.window_size:
            return TriggerResult.CONTINUE
        state.clear()
        return TriggerResult.FIRE

    def can_merge(self) -> bool:
        return True

    def on_merge(self, window: CountWindow, ctx: OnMergeContext) -> None:
        ctx.merge_partitioned_state(self._count)

    def clear(self, window: CountWindow, ctx: TriggerContext) -> None:
        ctx.get_partitioned_state(self._count).clear()

    def __repr__(self) -> str:
        return f"CountTrigger({self.window_size})"


class PurgingTrigger(Trigger[T, Window]):
    """Wraps another trigger and purges the contents at every firing."""

    def __init__(self, nested_trigger: Trigger[T, Any]) -> None:
        self.nested_trigger = nested_trigger

    @staticmethod
    def of(nested_trigger: Trigger[Any, Any]) -> "PurgingTrigger[Any]":
        return PurgingTrigger(nested_trigger)

    def on_element(
        self, element: T, timestamp: int, window: Window, ctx: TriggerContext
    ) -> TriggerResult:
        return _purging(self.nested_trigger.on_element(element, timestamp, window, ctx))

    def on_event_time(self, time: int, window: Window, ctx: TriggerContext) -> TriggerResult:
        return _purging(self.nested_trigger.on_event_time(time, window, ctx))

    def on_processing_time(self, time: int, window: Window, ctx: TriggerContext) -> TriggerResult:
        return _purging(self.nested_trigger.on_processing_time(time, window, ctx))

    def can_merge(self) -> bool:
        return self.nested_trigger.can_merge()

    def on_merge(self, window: Window, ctx: OnMergeContext) -> None:
        self.nested_trigger.on_merge(window, ctx)

    def clear(self, window: Window, ctx: TriggerContext) -> None:
        self.nested_trigger.clear(window, ctx)

    def __repr__(self) -> str:
        return f"PurgingTrigger({self.nested_trigger!r})"


def _purging(result: TriggerResult) -> TriggerResult:
    return TriggerResult.FIRE_AND_PURGE if result.is_fire() else result


class NeverTrigger(_BuiltInTrigger[T, GlobalWindow]):
    """Never fires: the default for the one global window."""

    def on_element(
        self, element: T, timestamp: int, window: GlobalWindow, ctx: TriggerContext
    ) -> TriggerResult:
        return TriggerResult.CONTINUE

    def on_merge(self, window: GlobalWindow, ctx: OnMergeContext) -> None:
        pass

    def clear(self, window: GlobalWindow, ctx: TriggerContext) -> None:
        pass


class EndOfStreamTrigger(_BuiltInTrigger[T, GlobalWindow]):
    """Fires once, when all input has ended."""

    def on_element(
        self, element: T, timestamp: int, window: GlobalWindow, ctx: TriggerContext
    ) -> TriggerResult:
        ctx.register_event_time_timer(window.max_timestamp())
        return TriggerResult.CONTINUE

    def on_event_time(self, time: int, window: GlobalWindow, ctx: TriggerContext) -> TriggerResult:
        return TriggerResult.FIRE if time == window.max_timestamp() else TriggerResult.CONTINUE

    def clear(self, window: GlobalWindow, ctx: TriggerContext) -> None:
        ctx.delete_event_time_timer(window.max_timestamp())


class ContinuousTrigger(_BuiltInTrigger[T, TimeWindow]):
    """Base class of the two continuous triggers: stores the next time to fire, the smallest that was registered."""

    def __init__(self, interval: int) -> None:
        if interval <= 0:
            raise ValueError(f"a trigger's interval must be at least 1 ms, not {interval} ms")
        self.interval = interval
        self._fire_timestamp = ReducingStateDescriptor("fire-timestamp", min, Types.LONG())

    @abstractmethod
    def _register(self, time: int, ctx: TriggerContext) -> None:
        """Set a timer in this trigger's time domain."""

    @abstractmethod
    def _delete(self, time: int, ctx: TriggerContext) -> None:
        """Delete a timer in this trigger's time domain."""

    def can_merge(self) -> bool:
        return True

    def on_merge(self, window: TimeWindow, ctx: OnMergeContext) -> None:
        ctx.merge_partitioned_state(self._fire_timestamp)
        next_fire = self._fire_state(ctx).get()
        if next_fire is not None:
            self._register(next_fire, ctx)

    def clear(self, window: TimeWindow, ctx: TriggerContext) -> None:
        state = self._fire_state(ctx)
        next_fire = state.get()
        if next_fire is not None:
            self._delete(next_fire, ctx)
            state.clear()

    def register_next_fire_timestamp(
        self,
        time: int,
        window: TimeWindow,
        ctx: TriggerContext,
        fire_timestamp_state: ReducingState[int],
    ) -> None:
        """Fire next at `time` + interval, or earlier at the end of the window."""
        next_fire = min(time + self.interval, window.max_timestamp())
        fire_timestamp_state.add(next_fire)
        self._register(next_fire, ctx)

    def _begin(self, time: int, window: TimeWindow, ctx: TriggerContext) -> None:
        """With a window's first record, at `time`: fire at the end of the interval that contains the time."""
        state = self._fire_state(ctx)
        if state.get() is None:
            # Towards zero, as Java's remainder has it: before the epoch the first interval ends later.
            rest = abs(time) % self.interval
            start = time - rest if time >= 0 else time + rest
            self.register_next_fire_timestamp(start, window, ctx, state)

    def _take_due(self, time: int, ctx: TriggerContext) -> bool:
        """Return whether to fire at `time`, and remove that firing time."""
        state = self._fire_state(ctx)
        if state.get() != time:
            return False
        state.clear()
        return True

    def _fire_state(self, ctx: TriggerContext) -> ReducingState[int]:
        return ctx.get_partitioned_state(self._fire_timestamp)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.interval})"


class ContinuousEventTimeTrigger(ContinuousTrigger[T]):
    """Fires every interval of event time, and at the end of the window."""

    @staticmethod
    def of(interval: Time | Duration | timedelta) -> "ContinuousEventTimeTrigger[Any]":
        return ContinuousEventTimeTrigger(to_millis(interval))

    def on_element(
        self, element: T, timestamp: int, window: TimeWindow, ctx: TriggerContext
    ) -> TriggerResult:
        if window.max_timestamp() <= ctx.get_current_watermark():
            return TriggerResult.FIRE
        ctx.register_event_time_timer(window.max_timestamp())
        self._begin(timestamp, window, ctx)
        return TriggerResult.CONTINUE

    def on_event_time(self, time: int, window: TimeWindow, ctx: TriggerContext) -> TriggerResult:
        if time == window.max_timestamp():
            return TriggerResult.FIRE
        if not self._take_due(time, ctx):
            return TriggerResult.CONTINUE
        # At the end of input a window without an end would fire for all the intervals of eternity, with nothing new.
        if ctx.get_current_watermark() < MAX_WATERMARK or window.max_timestamp() < MAX_WATERMARK:
            self.register_next_fire_timestamp(time, window, ctx, self._fire_state(ctx))
        return TriggerResult.FIRE

    def clear(self, window: TimeWindow, ctx: TriggerContext) -> None:
        super().clear(window, ctx)
        ctx.delete_event_time_timer(window.max_timestamp())

    def _register(self, time: int, ctx: TriggerContext) -> None:
        ctx.register_event_time_timer(time)

    def _delete(self, time: int, ctx: TriggerContext) -> None:
        ctx.delete_event_time_timer(time)


class ContinuousProcessingTimeTrigger(ContinuousTrigger[T]):
    """Fires every interval of processing time, and at the end of the window."""

    @staticmethod
    def of(interval: Time | Duration | timedelta) -> "ContinuousProcessingTimeTrigger[Any]":
        return ContinuousProcessingTimeTrigger(to_millis(interval))

    def on_element(
        self, element: T, timestamp: int, window: TimeWindow, ctx: TriggerContext
    ) -> TriggerResult:
        self._begin(ctx.get_current_processing_time(), window, ctx)
        return TriggerResult.CONTINUE

    def on_processing_time(
        self, time: int, window: TimeWindow, ctx: TriggerContext
    ) -> TriggerResult:
        if not self._take_due(time, ctx):
            return TriggerResult.CONTINUE
        # At the end the window goes with everything in it; another timer for the same time would be left over.
        if time != window.max_timestamp():
            self.register_next_fire_timestamp(time, window, ctx, self._fire_state(ctx))
        return TriggerResult.FIRE

    def _register(self, time: int, ctx: TriggerContext) -> None:
        ctx.register_processing_time_timer(time)

    def _delete(self, time: int, ctx: TriggerContext) -> None:
        ctx.delete_processing_time_timer(time)


class ProcessingTimeoutTrigger(Trigger[T, Window]):
    """Fires with the nested trigger, and `interval` ms of processing time after the first record that did not fire.

    Every timer of the window fires it, regardless of the nested trigger. With `reset_timer_on_new_record` the time
    counts from the last record. Without `should_clear_on_timeout` the nested trigger continues with its state; unless
    records reset it, the timeout is then set again only after the nested trigger fires. Does not support windows that
    merge.
    Source: Flink ProcessingTimeoutTrigger.
    """

    def __init__(
        self,
        nested_trigger: Trigger[T, Any],
        interval: int,
        reset_timer_on_new_record: bool = False,
        should_clear_on_timeout: bool = True,
    ) -> None:
        self.nested_trigger = nested_trigger
        self.interval = interval
        self.reset_timer_on_new_record = reset_timer_on_new_record
        self.should_clear_on_timeout = should_clear_on_timeout
        self._timeout = ValueStateDescriptor("timeout", Types.LONG())

    @staticmethod
    def of(
        nested_trigger: Trigger[Any, Any],
        timeout: Time | Duration | timedelta,
        reset_timer_on_new_record: bool = False,
        should_clear_on_timeout: bool = True,
    ) -> "ProcessingTimeoutTrigger[Any]":
        return ProcessingTimeoutTrigger(
            nested_trigger, to_millis(timeout), reset_timer_on_new_record, should_clear_on_timeout
        )

    def on_element(
        self, element: T, timestamp: int, window: Window, ctx: TriggerContext
    ) -> TriggerResult:
        result = self.nested_trigger.on_element(element, timestamp, window, ctx)
        if result.is_fire():
            self.clear(window, ctx)
            return result
        state = self._state(ctx)
        timeout = state.value()
        if timeout is not None and self.reset_timer_on_new_record:
            ctx.delete_processing_time_timer(timeout)
            timeout = None
        if timeout is None:
            timeout = ctx.get_current_processing_time() + self.interval
            state.update(timeout)
            ctx.register_processing_time_timer(timeout)
        return result

    def on_processing_time(self, time: int, window: Window, ctx: TriggerContext) -> TriggerResult:
        return self._time_out(
            self.nested_trigger.on_processing_time(time, window, ctx), window, ctx
        )

    def on_event_time(self, time: int, window: Window, ctx: TriggerContext) -> TriggerResult:
        return self._time_out(self.nested_trigger.on_event_time(time, window, ctx), window, ctx)

    def clear(self, window: Window, ctx: TriggerContext) -> None:
        state = self._state(ctx)
        timeout = state.value()
        if timeout is not None:
            ctx.delete_processing_time_timer(timeout)
            state.clear()
        self.nested_trigger.clear(window, ctx)

    def _time_out(
        self, result: TriggerResult, window: Window, ctx: TriggerContext
    ) -> TriggerResult:
        if self.should_clear_on_timeout:
            self.clear(window, ctx)
        return TriggerResult.FIRE_AND_PURGE if result.is_purge() else TriggerResult.FIRE

    def _state(self, ctx: TriggerContext) -> ValueState[int]:
        return ctx.get_partitioned_state(self._timeout)

    def __repr__(self) -> str:
        return f"TimeoutTrigger({self.nested_trigger!r})"


class DeltaFunction(ABC, Generic[T]):
    """Measures the distance between two records. A callable of two records may be passed instead."""

    @abstractmethod
    def get_delta(self, old_data_point: T, new_data_point: T) -> float:
        """Return the distance of `new_data_point` from `old_data_point`."""


Delta = DeltaFunction[Any] | Callable[[Any, Any], float]


def delta_between(function: Delta) -> Callable[[Any, Any], float]:
    """Return the measure as a callable of (old, new); TypeError for any other type."""
    if isinstance(function, DeltaFunction):
        return function.get_delta
    if not callable(function):
        raise TypeError(f"a DeltaFunction or a callable of two records is needed, not {function!r}")
    return function


def shown_delta(function: Delta) -> str:
    """Return the name of the function for plans."""
    return getattr(function, "__name__", type(function).__name__)


class DeltaTrigger(_BuiltInTrigger[T, Window]):
    """Fires with the record that is further than `threshold` from the last one that fired, or from the first record.

    Keeps the contents, and does not support windows that merge.
    """

    def __init__(
        self, threshold: float, delta_function: Delta, type_info: TypeInformation | None = None
    ) -> None:
        """`type_info` is the type of the records, which are kept in state; without it they are pickled."""
        delta_between(delta_function)
        self.threshold = threshold
        self.delta_function = delta_function
        record_type = Types.PICKLED_BYTE_ARRAY() if type_info is None else type_info
        self._last = ValueStateDescriptor("last-element", record_type)

    @staticmethod
    def of(
        threshold: float, delta_function: Delta, type_info: TypeInformation | None = None
    ) -> "DeltaTrigger[Any]":
        return DeltaTrigger(threshold, delta_function, type_info)

    def on_element(
        self, element: T, timestamp: int, window: Window, ctx: TriggerContext
    ) -> TriggerResult:
        state = ctx.get_partitioned_state(self._last)
        last = state.value()
        if last is None:
            state.update(element)
            return TriggerResult.CONTINUE
        if not delta_between(self.delta_function)(last, element) > self.threshold:
            return TriggerResult.CONTINUE
        state.update(element)
        return TriggerResult.FIRE

    def clear(self, window: Window, ctx: TriggerContext) -> None:
        ctx.get_partitioned_state(self._last).clear()

    def __repr__(self) -> str:
        return f"DeltaTrigger({shown_delta(self.delta_function)}, {self.threshold})"
