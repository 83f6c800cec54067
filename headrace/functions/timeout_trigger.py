"""ProcessingTimeoutTrigger: another trigger, and a time by the clock after which a window fires all the same."""

from datetime import timedelta
from typing import Any, TypeVar

from headrace.core.types.time_values import Duration, Time, to_millis
from headrace.core.types.type_info import Types
from headrace.functions.state import ValueState, ValueStateDescriptor
from headrace.functions.triggers import Trigger, TriggerContext, TriggerResult
from headrace.functions.windows import Window

T = TypeVar("T")


class ProcessingTimeoutTrigger(Trigger[T, Window]):
    """Fires with the nested trigger, and `interval` ms of the clock after the first record that did not fire.

    Every timer of the window fires it, whatever the nested trigger says. With `reset_timer_on_new_record` the time
    counts from the last record. Without `should_clear_on_timeout` the nested trigger goes on where it was; unless
    records reset it, the time is then not set again before that one fires. Cannot be used where windows merge.
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
