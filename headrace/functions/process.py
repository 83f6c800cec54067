"""Functions with a context: timestamps, timers, side outputs, keyed and broadcast state, contents of windows.

Contexts are interfaces here; operators implement them. Results are yielded or returned in an iterable; `(tag, value)`
with an OutputTag goes to that side output.
"""

import enum
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Generic, TypeVar

from headrace.core.types.type_info import RowTypeInfo, TypeInformation, Types
from headrace.functions.record import Function
from headrace.functions.runtime_context import KeyedStateStore
from headrace.functions.state import (
    BroadcastState,
    MapStateDescriptor,
    ReadOnlyBroadcastState,
    StateDescriptor,
)
from headrace.functions.windows import Window

KEY = TypeVar("KEY")
IN1 = TypeVar("IN1")
IN2 = TypeVar("IN2")
OUT = TypeVar("OUT")

DEFAULT_OUTPUT_TAG: Final = ""
"""Id that stands for the main output; side outputs must not use it."""
IN = TypeVar("IN")
W = TypeVar("W", bound=Window)
W2 = TypeVar("W2", bound=Window)


class TimeDomain(enum.Enum):
    """Clocks on which timers are set."""

    EVENT_TIME = 0
    PROCESSING_TIME = 1


class TimerService(ABC):
    """The clocks, and the timers of the current key. All times are epoch milliseconds."""

    @abstractmethod
    def current_processing_time(self) -> int:
        """Return the wall clock."""

    @abstractmethod
    def current_watermark(self) -> int:
        """Return event time; the smallest 64-bit number before the first watermark."""

    @abstractmethod
    def register_processing_time_timer(self, timestamp: int) -> None:
        """Fire once at or after that time; the same time set twice for a key is one timer."""

    @abstractmethod
    def register_event_time_timer(self, timestamp: int) -> None:
        """Fire once the watermark reaches that time; a time in the past fires at the next watermark."""

    @abstractmethod
    def delete_processing_time_timer(self, timestamp: int) -> None:
        """Delete the timer; no effect if there is none."""

    @abstractmethod
    def delete_event_time_timer(self, timestamp: int) -> None:
        """Delete the timer; no effect if there is none."""


class OutputTag:
    """Id and type of a side output. Tags are matched by id.

    A list as type means the row of those types; without a type values are pickled.
    """

    def __init__(
        self, tag_id: str, type_info: TypeInformation | Sequence[TypeInformation] | None = None
    ) -> None:
        if not tag_id:
            raise ValueError("OutputTag tag_id cannot be None or empty string")
        self.tag_id = tag_id
        if type_info is None:
            self.type_info = Types.PICKLED_BYTE_ARRAY()
        elif isinstance(type_info, TypeInformation):
            self.type_info = type_info
        else:
            self.type_info = RowTypeInfo(type_info)

    def __repr__(self) -> str:
        return f"OutputTag({self.tag_id!r}, {self.type_info})"


class ElementContext(ABC):
    """Base class of the contexts of a record or timer."""

    @abstractmethod
    def timer_service(self) -> TimerService:
        """Return the clocks and timers; timers only on keyed streams."""

    @abstractmethod
    def timestamp(self) -> int | None:
        """Return event time of the record or timer, epoch ms; None for a record without timestamp."""


class KeyedContext(ElementContext):
    """A context with a current key."""

    @abstractmethod
    def get_current_key(self) -> Any:
        """Return the key of the record or timer."""


class TimerContext(KeyedContext):
    """The context of a timer that fires."""

    @abstractmethod
    def time_domain(self) -> TimeDomain:
        """Return the clock on which the timer was set."""


class ProcessFunction(Function):
    """Receives every record of a stream with its context."""

    class Context(ElementContext):
        """Context of the current record."""

    @abstractmethod
    def process_element(self, value: Any, ctx: "ProcessFunction.Context") -> Iterable[Any] | None:
        """Yield the results."""


class KeyedProcessFunction(Function):
    """Receives every record of a keyed stream with its context; may keep state and set timers."""

    class Context(KeyedContext):
        """Context of the current record."""

    class OnTimerContext(TimerContext):
        """Context of the timer that fires."""

    @abstractmethod
    def process_element(
        self, value: Any, ctx: "KeyedProcessFunction.Context"
    ) -> Iterable[Any] | None:
        """Yield the results."""

    def on_timer(
        self, timestamp: int, ctx: "KeyedProcessFunction.OnTimerContext"
    ) -> Iterable[Any] | None:
        """Yield the results of a timer that is due."""


class CoProcessFunction(Function):
    """Receives the records of two connected streams with their context."""

    class Context(ElementContext):
        """Context of the current record."""

    @abstractmethod
    def process_element1(
        self, value: Any, ctx: "CoProcessFunction.Context"
    ) -> Iterable[Any] | None:
        """Yield the results for a record of the first stream."""

    @abstractmethod
    def process_element2(
        self, value: Any, ctx: "CoProcessFunction.Context"
    ) -> Iterable[Any] | None:
        """Yield the results for a record of the second stream."""


class KeyedCoProcessFunction(Function):
    """Receives the records of two streams with keys of one type; state and timers of a key serve both."""

    class Context(KeyedContext):
        """Context of the current record."""

    class OnTimerContext(TimerContext):
        """Context of the timer that fires."""

    @abstractmethod
    def process_element1(
        self, value: Any, ctx: "KeyedCoProcessFunction.Context"
    ) -> Iterable[Any] | None:
        """Yield the results for a record of the first stream."""

    @abstractmethod
    def process_element2(
        self, value: Any, ctx: "KeyedCoProcessFunction.Context"
    ) -> Iterable[Any] | None:
        """Yield the results for a record of the second stream."""

    def on_timer(
        self, timestamp: int, ctx: "KeyedCoProcessFunction.OnTimerContext"
    ) -> Iterable[Any] | None:
        """Yield the results of a timer that is due."""


class BroadcastBaseContext(ABC):
    """Base class of the contexts of both sides of a broadcast function."""

    @abstractmethod
    def timestamp(self) -> int | None:
        """Return event time of the record, epoch ms; None without timestamp."""

    @abstractmethod
    def current_processing_time(self) -> int:
        """Return the wall clock, epoch ms."""

    @abstractmethod
    def current_watermark(self) -> int:
        """Return event time, epoch ms."""


class BaseBroadcastProcessFunction(Function):
    """Base of functions over a stream and a broadcast stream."""

    BaseContext = BroadcastBaseContext

    class Context(BroadcastBaseContext):
        """Context on the broadcast side, where states can be written."""

        @abstractmethod
        def get_broadcast_state(
            self, state_descriptor: MapStateDescriptor
        ) -> BroadcastState[Any, Any]:
            """Return the state of that descriptor."""

    class ReadOnlyContext(BroadcastBaseContext):
        """Context on the other side, where states can only be read, so that they are equal on all subtasks."""

        @abstractmethod
        def get_broadcast_state(
            self, state_descriptor: MapStateDescriptor
        ) -> ReadOnlyBroadcastState[Any, Any]:
            """Return the state of that descriptor."""


class BroadcastProcessFunction(BaseBroadcastProcessFunction, Generic[IN1, IN2, OUT]):
    """Receives the records of a stream without keys and of a broadcast stream."""

    @abstractmethod
    def process_element(
        self, value: IN1, ctx: BaseBroadcastProcessFunction.ReadOnlyContext
    ) -> Iterable[OUT] | None:
        """Yield the results for a record of the data stream."""

    @abstractmethod
    def process_broadcast_element(
        self, value: IN2, ctx: BaseBroadcastProcessFunction.Context
    ) -> Iterable[OUT] | None:
        """Yield the results for a broadcast record; every subtask must handle it in the same way."""


class KeyedBroadcastProcessFunction(BaseBroadcastProcessFunction, Generic[KEY, IN1, IN2, OUT]):
    """Receives the records of a keyed stream and of a broadcast stream."""

    class Context(BaseBroadcastProcessFunction.Context):
        """Context of a broadcast record: no key is current."""

        @abstractmethod
        def apply_to_keyed_state(
            self, state_descriptor: StateDescriptor, function: Callable[[Any, Any], object]
        ) -> None:
            """Call `function(key, state)` for every key of this subtask that has a value in that keyed state.

            The state is that of the key, and may be read and written.
            """

    class ReadOnlyContext(BaseBroadcastProcessFunction.ReadOnlyContext):
        """Context of a record of the keyed stream."""

        @abstractmethod
        def timer_service(self) -> TimerService:
            """Return the clocks and the key's timers."""

        @abstractmethod
        def get_current_key(self) -> Any:
            """Return the key of the record or timer."""

    class OnTimerContext(ReadOnlyContext):
        """Context of the timer that fires."""

        @abstractmethod
        def time_domain(self) -> TimeDomain:
            """Return the clock on which the timer was set."""

    @abstractmethod
    def process_element(self, value: IN1, ctx: ReadOnlyContext) -> Iterable[OUT] | None:
        """Yield the results for a record of the keyed stream."""

    @abstractmethod
    def process_broadcast_element(self, value: IN2, ctx: Context) -> Iterable[OUT] | None:
        """Yield the results for a broadcast record; there is no current key."""

    def on_timer(self, timestamp: int, ctx: OnTimerContext) -> Iterable[OUT] | None:
        """Yield the results of a timer that is due."""


class WindowFunction(Function, Generic[IN, OUT, KEY, W]):
    """Receives all records of a key's window at once."""

    @abstractmethod
    def apply(self, key: KEY, window: W, inputs: Iterable[IN]) -> Iterable[OUT]:
        """Return or yield the results."""


class AllWindowFunction(Function, Generic[IN, OUT, W]):
    """Receives all records of a window at once."""

    @abstractmethod
    def apply(self, window: W, inputs: Iterable[IN]) -> Iterable[OUT]:
        """Return or yield the results."""


class PassThroughWindowFunction(WindowFunction[IN, IN, KEY, W]):
    """Returns the records unchanged."""

    def apply(self, key: KEY, window: W, inputs: Iterable[IN]) -> Iterable[IN]:
        return inputs


class PassThroughAllWindowFunction(AllWindowFunction[IN, IN, W]):
    """Returns the records unchanged."""

    def apply(self, window: W, inputs: Iterable[IN]) -> Iterable[IN]:
        return inputs


class AllWindowContext(ABC, Generic[W2]):
    """The window that fires, its state, and state shared by all windows."""

    @abstractmethod
    def window(self) -> W2: ...

    @abstractmethod
    def window_state(self) -> KeyedStateStore:
        """Return state of this key and window; not available if windows merge."""

    @abstractmethod
    def global_state(self) -> KeyedStateStore:
        """Return state of this key, shared by its windows."""


class KeyedWindowContext(AllWindowContext[W2]):
    """A window context with clocks. Times are epoch ms."""

    @abstractmethod
    def current_processing_time(self) -> int: ...

    @abstractmethod
    def current_watermark(self) -> int: ...


class ProcessWindowFunction(Function, Generic[IN, OUT, KEY, W]):
    """Receives all records of a key's window at once, with a context."""

    Context = KeyedWindowContext

    @abstractmethod
    def process(
        self, key: KEY, context: KeyedWindowContext[W], elements: Iterable[IN]
    ) -> Iterable[OUT]:
        """Return or yield the results."""

    def clear(self, context: KeyedWindowContext[W]) -> None:
        """Delete the window's own state when the window is deleted."""


class ProcessAllWindowFunction(Function, Generic[IN, OUT, W]):
    """Receives all records of a window at once, with a context."""

    Context = AllWindowContext

    @abstractmethod
    def process(self, context: AllWindowContext[W], elements: Iterable[IN]) -> Iterable[OUT]:
        """Return or yield the results."""

    def clear(self, context: AllWindowContext[W]) -> None:
        """Delete the window's own state when the window is deleted."""
