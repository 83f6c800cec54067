"""Assigners of time windows of fixed size: tumbling and sliding, by event time or by the clock."""

import enum
from collections.abc import Collection
from datetime import timedelta
from typing import Any, TypeVar

from headrace.core.randomness import SeededRandom
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


class WindowStagger(enum.Enum):
    """Whether the windows of all subtasks end at once, or spread over time so that not all fire together."""

    ALIGNED = "aligned"
    """At once."""
    RANDOM = "random"
    """Each subtask's are shifted by a random part of the size; the same again after a restart."""
    NATURAL = "natural"
    """Each subtask's are shifted by where the clock stood in its window when the first record came."""

    def get_stagger_offset(self, size: int, context: WindowAssignerContext) -> int:
        """Return the shift for windows of `size` ms: in ms, from 0, less than `size`."""
        match self:
            case WindowStagger.ALIGNED:
                return 0
            case WindowStagger.RANDOM:
                # Drawn from what names the subtask, so that windows which a restart finds open go on.
                subtask = context.get_runtime_context()
                seed = f"{subtask.get_task_name()} {subtask.get_index_of_this_subtask()}"
                return SeededRandom(seed).randrange(size)
            case WindowStagger.NATURAL:
                return context.get_current_processing_time() % size


class TimeWindowAssigner(WindowAssigner[T, TimeWindow]):
    """What assigners of time windows share."""

    def get_default_trigger(self, env: Any) -> Trigger[T, TimeWindow]:
        return EventTimeTrigger() if self.is_event_time() else ProcessingTimeTrigger()

    def get_window_serializer(self) -> TypeSerializer[TimeWindow]:
        return TimeWindowSerializer()


class TumblingWindows(TimeWindowAssigner[T]):
    """Windows of `size` ms side by side, the one at the epoch shifted by `offset` ms and, per subtask, by `stagger`."""

    def __init__(
        self, size: int, offset: int, stagger: WindowStagger = WindowStagger.ALIGNED
    ) -> None:
        if abs(offset) >= size:
            raise ValueError(f"{type(self).__name__} parameters must satisfy abs(offset) < size")
        self.size = size
        self.offset = offset
        self.stagger = stagger
        # Known with a subtask's first record, unless there is nothing to know.
        self._shift: int | None = offset if stagger is WindowStagger.ALIGNED else None

    def window_of(self, timestamp: int, context: WindowAssignerContext) -> TimeWindow:
        """Return the window that holds `timestamp`."""
        shift = self._shift
        if shift is None:
            shift = self.offset + self.stagger.get_stagger_offset(self.size, context)
            self._shift = shift
        start = TimeWindow.get_window_start_with_offset(timestamp, shift, self.size)
        return TimeWindow(start, start + self.size)

    def __repr__(self) -> str:
        stagger = "" if self.stagger is WindowStagger.ALIGNED else f", {self.stagger.name}"
        return f"{type(self).__name__}({self.size}, {self.offset}{stagger})"


class TumblingEventTimeWindows(TumblingWindows[T]):
    """Windows side by side in event time."""

    @staticmethod
    def of(
        size: Amount,
        offset: Amount | None = None,
        stagger: WindowStagger = WindowStagger.ALIGNED,
    ) -> "TumblingEventTimeWindows[Any]":
        return TumblingEventTimeWindows(to_millis(size), _millis_or_zero(offset), stagger)

    def assign_windows(
        self, element: T, timestamp: int, context: WindowAssignerContext
    ) -> Collection[TimeWindow]:
        return [self.window_of(require_timestamp(timestamp), context)]

    def is_event_time(self) -> bool:
        return True


class TumblingProcessingTimeWindows(TumblingWindows[T]):
    """Windows side by side on the clock."""

    @staticmethod
    def of(
        size: Amount,
        offset: Amount | None = None,
        stagger: WindowStagger = WindowStagger.ALIGNED,
    ) -> "TumblingProcessingTimeWindows[Any]":
        return TumblingProcessingTimeWindows(to_millis(size), _millis_or_zero(offset), stagger)

    def assign_windows(
        self, element: T, timestamp: int, context: WindowAssignerContext
    ) -> Collection[TimeWindow]:
        return [self.window_of(context.get_current_processing_time(), context)]

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
