"""Contexts that process functions are given: one object per operator, moved from record to record."""

from typing import Any

from headrace.core.elements import MIN_TIMESTAMP
from headrace.functions.process import (
    CoProcessFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    ProcessFunction,
    TimeDomain,
    TimerService,
)
from headrace.operators.operator import Operator
from headrace.operators.timers import InternalTimerService
from headrace.state.backend import EntryScope, StateAccessError


class KeyedTimerService(TimerService):
    """TimerService of a keyed operator: timers belong to the current key."""

    def __init__(self, timers: InternalTimerService) -> None:
        self._timers = timers

    def current_processing_time(self) -> int:
        return self._timers.current_processing_time_ms()

    def current_watermark(self) -> int:
        return self._timers.current_watermark_ms

    def register_processing_time_timer(self, timestamp: int) -> None:
        self._timers.register(TimeDomain.PROCESSING_TIME, timestamp)

    def register_event_time_timer(self, timestamp: int) -> None:
        self._timers.register(TimeDomain.EVENT_TIME, timestamp)

    def delete_processing_time_timer(self, timestamp: int) -> None:
        self._timers.delete(TimeDomain.PROCESSING_TIME, timestamp)

    def delete_event_time_timer(self, timestamp: int) -> None:
        self._timers.delete(TimeDomain.EVENT_TIME, timestamp)


class ClockTimerService(TimerService):
    """TimerService of an operator without keys: it tells the time and takes no timers."""

    def __init__(self, operator: Operator) -> None:
        self._operator = operator

    def current_processing_time(self) -> int:
        return self._operator.context.timers.now_ms()

    def current_watermark(self) -> int:
        return self._operator.current_watermark

    def register_processing_time_timer(self, timestamp: int) -> None:
        self._refuse()

    def register_event_time_timer(self, timestamp: int) -> None:
        self._refuse()

    def delete_processing_time_timer(self, timestamp: int) -> None:
        self._refuse()

    def delete_event_time_timer(self, timestamp: int) -> None:
        self._refuse()

    def _refuse(self) -> None:
        raise StateAccessError(
            "timers belong to keys: call key_by first and use a KeyedProcessFunction"
        )


class RecordContext(ProcessFunction.Context, CoProcessFunction.Context):
    """Context of a record on a stream without keys. `current_timestamp` is MIN_TIMESTAMP where there is none."""

    def __init__(self, timer_service: TimerService) -> None:
        self._timer_service = timer_service
        self.current_timestamp = MIN_TIMESTAMP

    def timer_service(self) -> TimerService:
        return self._timer_service

    def timestamp(self) -> int | None:
        timestamp = self.current_timestamp
        return None if timestamp == MIN_TIMESTAMP else timestamp


class KeyedRecordContext(KeyedProcessFunction.Context, KeyedCoProcessFunction.Context):
    """Context of a record on a keyed stream; the key is the state backend's."""

    def __init__(self, timer_service: TimerService, scope: EntryScope) -> None:
        self._timer_service = timer_service
        self._scope = scope
        self.current_timestamp = MIN_TIMESTAMP

    def timer_service(self) -> TimerService:
        return self._timer_service

    def timestamp(self) -> int | None:
        timestamp = self.current_timestamp
        return None if timestamp == MIN_TIMESTAMP else timestamp

    def get_current_key(self) -> Any:
        return self._scope.entry


class FiringContext(
    KeyedRecordContext, KeyedProcessFunction.OnTimerContext, KeyedCoProcessFunction.OnTimerContext
):
    """Context of a timer that fires."""

    domain = TimeDomain.EVENT_TIME

    def time_domain(self) -> TimeDomain:
        return self.domain
