"""Triggers that fire again and again, every interval of event time or of the clock."""

from abc import abstractmethod
from datetime import timedelta
from typing import Any, TypeVar

from headrace.core.elements import MAX_WATERMARK
from headrace.core.types.time_values import Duration, Time, to_millis
from headrace.core.types.type_info import Types
from headrace.functions.state import ReducingState, ReducingStateDescriptor
from headrace.functions.triggers import OnMergeContext, Trigger, TriggerContext, TriggerResult
from headrace.functions.windows import TimeWindow

T = TypeVar("T")


class ContinuousTrigger(Trigger[T, TimeWindow]):
    """What the two continuous triggers share: the next time to fire, kept as the smallest one asked for."""

    def __init__(self, interval: int) -> None:
        if interval <= 0:
            raise ValueError(f"a trigger's interval must be at least 1 ms, not {interval} ms")
        self.interval = interval
        self._fire_timestamp = ReducingStateDescriptor("fire-timestamp", min, Types.LONG())

    @abstractmethod
    def _register(self, time: int, ctx: TriggerContext) -> None:
        """Set a timer on this trigger's clock."""

    @abstractmethod
    def _delete(self, time: int, ctx: TriggerContext) -> None:
        """Forget a timer on this trigger's clock."""

    def on_event_time(self, time: int, window: TimeWindow, ctx: TriggerContext) -> TriggerResult:
        return TriggerResult.CONTINUE

    def on_processing_time(
        self, time: int, window: TimeWindow, ctx: TriggerContext
    ) -> TriggerResult:
        return TriggerResult.CONTINUE

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
        """Fire next at `time` + interval, at the end of the window at the latest."""
        next_fire = min(time + self.interval, window.max_timestamp())
        fire_timestamp_state.add(next_fire)
        self._register(next_fire, ctx)

    def _begin(self, time: int, window: TimeWindow, ctx: TriggerContext) -> None:
        """With a window's first record, at `time`: fire when the interval ends that the time lies in."""
        state = self._fire_state(ctx)
        if state.get() is None:
            # Towards zero, as Java's remainder has it: before the epoch the first interval ends later.
            rest = abs(time) % self.interval
            start = time - rest if time >= 0 else time + rest
            self.register_next_fire_timestamp(start, window, ctx, state)

    def _take_due(self, time: int, ctx: TriggerContext) -> bool:
        """Whether to fire at `time`, which is then no longer waited for."""
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
    """Fires every interval of the clock, and at the end of the window."""

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
