"""Window assigners: assign records to windows.

There are tumbling and sliding windows of fixed size, in event time or processing time; sessions, which each record
opens and which merge if they overlap or touch; global windows; count windows; and base classes for users' own.

Source: Flink WindowAssigner and its subclasses.
"""

import enum
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable
from datetime import timedelta
from typing import Any, Generic, TypeVar

from headrace.core.elements import MIN_TIMESTAMP
from headrace.core.randomness import SeededRandom
from headrace.core.types.time_values import Duration, Time, to_millis
from headrace.core.types.type_info import Types
from headrace.functions.runtime_context import RuntimeContext
from headrace.functions.serialization import TypeSerializer
from headrace.functions.state import ValueStateDescriptor
from headrace.functions.windowing.triggers import (
    CountTrigger,
    EndOfStreamTrigger,
    EventTimeTrigger,
    NeverTrigger,
    ProcessingTimeTrigger,
    PurgingTrigger,
    Trigger,
)
from headrace.functions.windows import (
    CountWindow,
    CountWindowSerializer,
    GlobalWindow,
    GlobalWindowSerializer,
    MergeCallback,
    TimeWindow,
    TimeWindowSerializer,
    Window,
)

T = TypeVar("T")
W = TypeVar("W", bound=Window)
Amount = Time | Duration | timedelta


class WindowAssignerContext(ABC):
    """Context in which an assigner assigns windows: the wall clock, subtask and keyed state."""

    @abstractmethod
    def get_current_processing_time(self) -> int:
        """Return the wall clock, epoch ms."""

    @abstractmethod
    def get_runtime_context(self) -> RuntimeContext:
        """Return the context with subtask and keyed state."""


class WindowAssigner(ABC, Generic[T, W]):
    """Base of all assigners; picklable."""

    WindowAssignerContext = WindowAssignerContext

    @abstractmethod
    def assign_windows(
        self, element: T, timestamp: int, context: WindowAssignerContext
    ) -> Collection[W]:
        """Return the windows of a record.

        `timestamp` is epoch ms, or the smallest 64-bit number without a timestamp.
        """

    @abstractmethod
    def get_default_trigger(self, env: Any) -> Trigger[T, W]:
        """Return the trigger used if none is set; `env` is the stream environment, or None."""

    @abstractmethod
    def get_window_serializer(self) -> TypeSerializer[W]:
        """Return the serializer with which windows are stored."""

    @abstractmethod
    def is_event_time(self) -> bool:
        """Return whether windows follow timestamps rather than processing time."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class MergingWindowAssigner(WindowAssigner[T, W]):
    """Base of assigners whose windows merge."""

    MergeCallback = MergeCallback

    @abstractmethod
    def merge_windows(self, windows: Iterable[W], callback: MergeCallback[W]) -> None:
        """Call `callback` for every group of windows that become one."""


def require_timestamp(timestamp: int) -> int:
    """Return `timestamp`; ValueError if a record has none."""
    if timestamp == MIN_TIMESTAMP:
        raise ValueError(
            "a record without a timestamp cannot be put into event-time windows: "
            "call assign_timestamps_and_watermarks before, or use processing-time windows"
        )
    return timestamp


class GlobalWindows(WindowAssigner[T, GlobalWindow]):
    """Puts all records of a key into one window.

    Unless the program sets a trigger, it never fires, or only at the end of the input if it was created to do so.
    """

    def __init__(self, default_trigger: Trigger[Any, GlobalWindow] | None = None) -> None:
        self.default_trigger = default_trigger

    @staticmethod
    def create() -> "GlobalWindows[Any]":
        return GlobalWindows()

    @staticmethod
    def create_with_end_of_stream_trigger() -> "GlobalWindows[Any]":
        return GlobalWindows(EndOfStreamTrigger())

    def assign_windows(
        self, element: T, timestamp: int, context: WindowAssignerContext
    ) -> Collection[GlobalWindow]:
        return [GlobalWindow.get()]

    def get_default_trigger(self, env: Any) -> Trigger[T, GlobalWindow]:
        return NeverTrigger() if self.default_trigger is None else self.default_trigger

    def get_window_serializer(self) -> TypeSerializer[GlobalWindow]:
        return GlobalWindowSerializer()

    def is_event_time(self) -> bool:
        return False

    def __repr__(self) -> str:
        trigger = "" if self.default_trigger is None else f"trigger={self.default_trigger!r}"
        return f"GlobalWindows({trigger})"


class CountWindowAssigner(WindowAssigner[T, CountWindow]):
    """Base class of the two count assigners: numbers the records of each key, and fires at `window_size` records.

    A window's contents are purged when it fires, because it is then full.
    """

    def __init__(self, window_size: int) -> None:
        if window_size <= 0:
            raise ValueError(f"{type(self).__name__} parameters must satisfy 0 < size")
        self.window_size = window_size
        self._counter = ValueStateDescriptor("count-window-counter", Types.LONG())

    def next_number(self, context: WindowAssignerContext) -> int:
        """Return the number of the current record among its key's, from 0, and count it."""
        state = context.get_runtime_context().get_state(self._counter)
        number: int = state.value() or 0
        state.update(number + 1)
        return number

    def get_default_trigger(self, env: Any) -> Trigger[T, Any]:
        return PurgingTrigger.of(CountTrigger.of(self.window_size))

    def get_window_serializer(self) -> TypeSerializer[CountWindow]:
        return CountWindowSerializer()

    def is_event_time(self) -> bool:
        return False


class CountTumblingWindowAssigner(CountWindowAssigner[T]):
    """Windows of `window_size` records of a key; an incomplete last window never fires."""

    @staticmethod
    def of(window_size: int) -> "CountTumblingWindowAssigner[Any]":
        return CountTumblingWindowAssigner(window_size)

    def assign_windows(
        self, element: T, timestamp: int, context: WindowAssignerContext
    ) -> Collection[CountWindow]:
        return [CountWindow(self.next_number(context) // self.window_size)]

    def __repr__(self) -> str:
        return f"CountTumblingWindowAssigner({self.window_size})"


class CountSlidingWindowAssigner(CountWindowAssigner[T]):
    """Windows of the last `window_size` records of a key, every `window_slide` records; only full windows fire."""

    def __init__(self, window_size: int, window_slide: int) -> None:
        super().__init__(window_size)
        if window_slide <= 0:
            raise ValueError("CountSlidingWindowAssigner parameters must satisfy 0 < slide")
        self.window_slide = window_slide

    @staticmethod
    def of(window_size: int, window_slide: int) -> "CountSlidingWindowAssigner[Any]":
        return CountSlidingWindowAssigner(window_size, window_slide)

    def assign_windows(
        self, element: T, timestamp: int, context: WindowAssignerContext
    ) -> Collection[CountWindow]:
        number, size, slide = self.next_number(context), self.window_size, self.window_slide
        # Window i holds the records [i * slide, i * slide + size).
        last = number // slide
        first = max(0, -(-(number - size + 1) // slide))
        return [CountWindow(id) for id in range(last, first - 1, -1)]

    def __repr__(self) -> str:
        return f"CountSlidingWindowAssigner({self.window_size}, {self.window_slide})"


class WindowStagger(enum.Enum):
    """Ends of the windows of all subtasks: at the same time, or spread so that not all fire at once."""

    ALIGNED = "aligned"
    """All subtasks' windows end at the same time."""
    RANDOM = "random"
    """Each subtask's windows are shifted by a random part of the size, which is the same after a restart."""
    NATURAL = "natural"
    """Each subtask's windows are shifted by the time in its window at which the first record arrived."""

    def get_stagger_offset(self, size: int, context: WindowAssignerContext) -> int:
        """Return the shift in ms for windows of `size` ms: at least 0, less than `size`."""
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
    """Base class of assigners of time windows."""

    @abstractmethod
    def time_of(self, timestamp: int, context: WindowAssignerContext) -> int:
        """Return the time that determines the windows of a record."""

    def get_default_trigger(self, env: Any) -> Trigger[T, TimeWindow]:
        return EventTimeTrigger() if self.is_event_time() else ProcessingTimeTrigger()

    def get_window_serializer(self) -> TypeSerializer[TimeWindow]:
        return TimeWindowSerializer()


class _InEventTime(TimeWindowAssigner[T]):
    """Assigns records to windows by their timestamps."""

    def time_of(self, timestamp: int, context: WindowAssignerContext) -> int:
        return require_timestamp(timestamp)

    def is_event_time(self) -> bool:
        return True


class _OnTheClock(TimeWindowAssigner[T]):
    """Assigns records to windows by the processing time at which they arrive."""

    def time_of(self, timestamp: int, context: WindowAssignerContext) -> int:
        return context.get_current_processing_time()

    def is_event_time(self) -> bool:
        return False


class TumblingWindows(TimeWindowAssigner[T]):
    """Adjacent windows of `size` ms, aligned to the epoch plus `offset` ms and, per subtask, plus `stagger`."""

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

    def assign_windows(
        self, element: T, timestamp: int, context: WindowAssignerContext
    ) -> Collection[TimeWindow]:
        time = self.time_of(timestamp, context)
        shift = self._shift
        if shift is None:
            shift = self.offset + self.stagger.get_stagger_offset(self.size, context)
            self._shift = shift
        start = TimeWindow.get_window_start_with_offset(time, shift, self.size)
        return [TimeWindow(start, start + self.size)]

    def __repr__(self) -> str:
        stagger = "" if self.stagger is WindowStagger.ALIGNED else f", {self.stagger.name}"
        return f"{type(self).__name__}({self.size}, {self.offset}{stagger})"


class TumblingEventTimeWindows(_InEventTime[T], TumblingWindows[T]):
    """Adjacent windows in event time."""

    @staticmethod
    def of(
        size: Amount,
        offset: Amount | None = None,
        stagger: WindowStagger = WindowStagger.ALIGNED,
    ) -> "TumblingEventTimeWindows[Any]":
        return TumblingEventTimeWindows(to_millis(size), _millis_or_zero(offset), stagger)


class TumblingProcessingTimeWindows(_OnTheClock[T], TumblingWindows[T]):
    """Adjacent windows in processing time."""

    @staticmethod
    def of(
        size: Amount,
        offset: Amount | None = None,
        stagger: WindowStagger = WindowStagger.ALIGNED,
    ) -> "TumblingProcessingTimeWindows[Any]":
        return TumblingProcessingTimeWindows(to_millis(size), _millis_or_zero(offset), stagger)


class SlidingWindows(TimeWindowAssigner[T]):
    """Windows of `size` ms, one beginning every `slide` ms; a record may be in several or, between windows, in none."""

    def __init__(self, size: int, slide: int, offset: int) -> None:
        if abs(offset) >= slide or size <= 0:
            raise ValueError(
                f"{type(self).__name__} parameters must satisfy abs(offset) < slide and size > 0"
            )
        self.size = size
        self.slide = slide
        self.offset = offset

    def assign_windows(
        self, element: T, timestamp: int, context: WindowAssignerContext
    ) -> Collection[TimeWindow]:
        """Return the windows that contain the record's time, newest first."""
        time = self.time_of(timestamp, context)
        last = TimeWindow.get_window_start_with_offset(time, self.offset, self.slide)
        starts = range(last, time - self.size, -self.slide)
        return [TimeWindow(start, start + self.size) for start in starts]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.size}, {self.slide}, {self.offset})"


class SlidingEventTimeWindows(_InEventTime[T], SlidingWindows[T]):
    """Overlapping windows in event time."""

    @staticmethod
    def of(
        size: Amount, slide: Amount, offset: Amount | None = None
    ) -> "SlidingEventTimeWindows[Any]":
        millis = to_millis(size), to_millis(slide), _millis_or_zero(offset)
        return SlidingEventTimeWindows(*millis)


class SlidingProcessingTimeWindows(_OnTheClock[T], SlidingWindows[T]):
    """Overlapping windows in processing time."""

    @staticmethod
    def of(
        size: Amount, slide: Amount, offset: Amount | None = None
    ) -> "SlidingProcessingTimeWindows[Any]":
        millis = to_millis(size), to_millis(slide), _millis_or_zero(offset)
        return SlidingProcessingTimeWindows(*millis)


def _millis_or_zero(amount: Amount | None) -> int:
    return 0 if amount is None else to_millis(amount)


class SessionWindowTimeGapExtractor(ABC):
    """Returns for each record how long its session waits for the next one."""

    @abstractmethod
    def extract(self, element: Any) -> int:
        """Return the gap in ms, above 0."""


class SessionWindows(TimeWindowAssigner[T], MergingWindowAssigner[T, TimeWindow]):
    """Base class of session assigners: a record's window begins at its time and lasts for its gap."""

    @abstractmethod
    def gap_of(self, element: T) -> int:
        """Return the gap of a record in ms, above 0."""

    def assign_windows(
        self, element: T, timestamp: int, context: WindowAssignerContext
    ) -> Collection[TimeWindow]:
        start = self.time_of(timestamp, context)
        return [TimeWindow(start, start + self.gap_of(element))]

    def merge_windows(
        self, windows: Iterable[TimeWindow], callback: MergeCallback[TimeWindow]
    ) -> None:
        TimeWindow.merge_windows(windows, callback)


class FixedGapSessionWindows(SessionWindows[T]):
    """Sessions whose gap is the same for all records."""

    def __init__(self, session_gap: int) -> None:
        if session_gap <= 0:
            raise ValueError(f"{type(self).__name__} parameters must satisfy 0 < size")
        self.session_gap = session_gap

    def gap_of(self, element: T) -> int:
        return self.session_gap

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.session_gap})"


class DynamicGapSessionWindows(SessionWindows[T]):
    """Sessions whose gap depends on the record."""

    def __init__(self, session_window_time_gap_extractor: SessionWindowTimeGapExtractor) -> None:
        self.gap_extractor = session_window_time_gap_extractor

    def gap_of(self, element: T) -> int:
        """Return the gap of a record in ms; ValueError unless above 0."""
        gap = self.gap_extractor.extract(element)
        if gap <= 0:
            raise ValueError("Dynamic session time gap must satisfy 0 < gap")
        return gap


class DynamicEventTimeSessionWindows(_InEventTime[T], DynamicGapSessionWindows[T]):
    """Sessions in event time with a gap per record."""

    @staticmethod
    def with_dynamic_gap(
        extractor: SessionWindowTimeGapExtractor,
    ) -> "DynamicEventTimeSessionWindows[Any]":
        return DynamicEventTimeSessionWindows(extractor)


class DynamicProcessingTimeSessionWindows(_OnTheClock[T], DynamicGapSessionWindows[T]):
    """Sessions in processing time with a gap per record."""

    @staticmethod
    def with_dynamic_gap(
        extractor: SessionWindowTimeGapExtractor,
    ) -> "DynamicProcessingTimeSessionWindows[Any]":
        return DynamicProcessingTimeSessionWindows(extractor)


class EventTimeSessionWindows(_InEventTime[T], FixedGapSessionWindows[T]):
    """Sessions in event time."""

    @staticmethod
    def with_gap(size: Amount) -> "EventTimeSessionWindows[Any]":
        return EventTimeSessionWindows(to_millis(size))

    @staticmethod
    def with_dynamic_gap(
        extractor: SessionWindowTimeGapExtractor,
    ) -> DynamicEventTimeSessionWindows[Any]:
        return DynamicEventTimeSessionWindows(extractor)


class ProcessingTimeSessionWindows(_OnTheClock[T], FixedGapSessionWindows[T]):
    """Sessions in processing time."""

    @staticmethod
    def with_gap(size: Amount) -> "ProcessingTimeSessionWindows[Any]":
        return ProcessingTimeSessionWindows(to_millis(size))

    @staticmethod
    def with_dynamic_gap(
        extractor: SessionWindowTimeGapExtractor,
    ) -> DynamicProcessingTimeSessionWindows[Any]:
        return DynamicProcessingTimeSessionWindows(extractor)
