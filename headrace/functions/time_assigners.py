"""Assigners of time windows of fixed size: tumbling and sliding, by event time or by the clock."""

from collections.abc import Collection
from datetime import timedelta
from typing import Any, TypeVar

from headrace.core.types.time_values import Duration, Time, to_millis
from headrace.functions.assigners import (
    WindowAssigner,
    WindowAssignerContext,
    require_timestamp,
)
from headrace.functions.serialization import TypeSerializer
from headrace.functions.triggers import EventTimeTrigger, ProcessingTimeTrigger, Trigger
from headrace.functions.windows import TimeWindow, TimeWindowSerializer

T = TypeVar("T")

Amount = Time | Duration | timedelta


class TimeWindowAssigner(WindowAssigner[T, TimeWindow]):
    """What assigners of time windows share."""

    def get_default_trigger(self, env: Any) -> Trigger[T, TimeWindow]:
        return EventTimeTrigger() if self.is_event_time() else ProcessingTimeTrigger()

    def get_window_serializer(self) -> TypeSerializer[TimeWindow]:
        return TimeWindowSerializer()


class TumblingWindows(TimeWindowAssigner[T]):
    """Windows of `size` ms side by side, the one at the epoch shifted by `offset` ms."""

    def __init__(self, size: int, offset: int) -> None:
        if abs(offset) >= size:
            raise ValueError(f"{type(self).__name__} parameters must satisfy abs(offset) < size")
        self.size = size
        self.offset = offset

    def window_of(self, timestamp: int) -> TimeWindow:
        """Return the window that holds `timestamp`."""
        start = TimeWindow.get_window_start_with_offset(timestamp, self.offset, self.size)
        return TimeWindow(start, start + self.size)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.size}, {self.offset})"


class TumblingEventTimeWindows(TumblingWindows[T]):
    """Windows side by side in event time."""

    @staticmethod
    def of(size: Amount, offset: Amount | None = None) -> "TumblingEventTimeWindows[Any]":
        return TumblingEventTimeWindows(to_millis(size), _millis_or_zero(offset))

    def assign_windows(
        self, element: T, timestamp: int, context: WindowAssignerContext
    ) -> Collection[TimeWindow]:
        return [self.window_of(require_timestamp(timestamp))]

    def is_event_time(self) -> bool:
        return True


class TumblingProcessingTimeWindows(TumblingWindows[T]):
    """Windows side by side on the clock."""

    @staticmethod
    def of(size: Amount, offset: Amount | None = None) -> "TumblingProcessingTimeWindows[Any]":
        return TumblingProcessingTimeWindows(to_millis(size), _millis_or_zero(offset))

    def assign_windows(
        self, element: T, timestamp: int, context: WindowAssignerContext
    ) -> Collection[TimeWindow]:
        return [self.window_of(context.get_current_processing_time())]

    def is_event_time(self) -> bool:
        return False


class SlidingWindows(TimeWindowAssigner[T]):
    """Windows of `size` ms, one beginning every `slide` ms; a record may be in several or, in gaps, in none."""

    def __init__(self, size: int, slide: int, offset: int) -> None:
        if abs(offset) >= slide or size <= 0:
            raise ValueError(
                f"{type(self).__name__} parameters must satisfy abs(offset) < slide and size > 0"
            )
        self.size = size
        self.slide = slide
        self.offset = offset

    def windows_of(self, timestamp: int) -> list[TimeWindow]:
        """Return the windows that hold `timestamp`, newest first."""
        last = TimeWindow.get_window_start_with_offset(timestamp, self.offset, self.slide)
        starts = range(last, timestamp - self.size, -self.slide)
        return [TimeWindow(start, start + self.size) for start in starts]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.size}, {self.slide}, {self.offset})"


class SlidingEventTimeWindows(SlidingWindows[T]):
    """Overlapping windows in event time."""

    @staticmethod
    def of(
        size: Amount, slide: Amount, offset: Amount | None = None
    ) -> "SlidingEventTimeWindows[Any]":
        millis = to_millis(size), to_millis(slide), _millis_or_zero(offset)
        return SlidingEventTimeWindows(*millis)

    def assign_windows(
        self, element: T, timestamp: int, context: WindowAssignerContext
    ) -> Collection[TimeWindow]:
        return self.windows_of(require_timestamp(timestamp))

    def is_event_time(self) -> bool:
        return True


class SlidingProcessingTimeWindows(SlidingWindows[T]):
    """Overlapping windows on the clock."""

    @staticmethod
    def of(
        size: Amount, slide: Amount, offset: Amount | None = None
    ) -> "SlidingProcessingTimeWindows[Any]":
        millis = to_millis(size), to_millis(slide), _millis_or_zero(offset)
        return SlidingProcessingTimeWindows(*millis)

    def assign_windows(
        self, element: T, timestamp: int, context: WindowAssignerContext
    ) -> Collection[TimeWindow]:
        return self.windows_of(context.get_current_processing_time())

    def is_event_time(self) -> bool:
        return False


def _millis_or_zero(amount: Amount | None) -> int:
    return 0 if amount is None else to_millis(amount)
