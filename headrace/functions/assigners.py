"""Window assigners: which windows a record belongs to. Base classes, global and count windows, and own assigners.

Time windows of fixed size are in `time_assigners`, sessions in `session_assigners`.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable
from typing import Any, Generic, TypeVar

from headrace.core.elements import MIN_TIMESTAMP
from headrace.core.types.type_info import Types
from headrace.functions.runtime_context import RuntimeContext
from headrace.functions.serialization import TypeSerializer
from headrace.functions.state import ValueStateDescriptor
from headrace.functions.triggers import (
    CountTrigger,
    EndOfStreamTrigger,
    NeverTrigger,
    PurgingTrigger,
    Trigger,
)
from headrace.functions.windows import (
    CountWindow,
    CountWindowSerializer,
    GlobalWindow,
    GlobalWindowSerializer,
    MergeCallback,
    Window,
)

T = TypeVar("T")
W = TypeVar("W", bound=Window)


class WindowAssignerContext(ABC):
    """What an assigner may ask."""

    @abstractmethod
    def get_current_processing_time(self) -> int:
        """The wall clock, epoch ms."""

    @abstractmethod
    def get_runtime_context(self) -> RuntimeContext:
        """Subtask and keyed state."""


class WindowAssigner(ABC, Generic[T, W]):
    """Base of all assigners; picklable."""

    WindowAssignerContext = WindowAssignerContext

    @abstractmethod
    def assign_windows(
        self, element: T, timestamp: int, context: WindowAssignerContext
    ) -> Collection[W]:
        """Return the windows of a record; `timestamp` is epoch ms, the smallest 64-bit number for none."""

    @abstractmethod
    def get_default_trigger(self, env: Any) -> Trigger[T, W]:
        """Return the trigger that is used when none is set; `env` is the stream environment, or None."""

    @abstractmethod
    def get_window_serializer(self) -> TypeSerializer[W]:
        """Return how windows are stored."""

    @abstractmethod
    def is_event_time(self) -> bool:
        """Whether windows follow timestamps rather than the clock."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class MergingWindowAssigner(WindowAssigner[T, W]):
    """Base of assigners whose windows grow together."""

    MergeCallback = MergeCallback

    @abstractmethod
    def merge_windows(self, windows: Iterable[W], callback: MergeCallback[W]) -> None:
        """Call back for every group of windows that become one."""


def require_timestamp(timestamp: int) -> int:
    """Return `timestamp`; ValueError where a record has none."""
    if timestamp == MIN_TIMESTAMP:
        raise ValueError(
            "a record without a timestamp cannot be put into event-time windows: "
            "call assign_timestamps_and_watermarks before, or take processing-time windows"
        )
    return timestamp


class GlobalWindows(WindowAssigner[T, GlobalWindow]):
    """Everything of a key in one window, which never fires by itself unless it was made to at the end of input."""

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
    """What the two count assigners share: a running number per key, and a trigger at `window_size` records.

    The contents of a window go when it fires: it is full then and will not be asked for again.
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
    """Every `window_size` records of a key; an incomplete last window never fires."""

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
    """The last `window_size` records of a key, every `window_slide` records; only full windows fire."""

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
