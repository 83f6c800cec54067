"""Windows: groups of records by event time, processing time or count, and their serializers.

Assigners are in `assigners`, triggers in `triggers`.
"""

import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from functools import total_ordering
from io import BytesIO
from typing import Any, Final, Generic, TypeVar

from headrace.core.elements import MAX_WATERMARK, MIN_TIMESTAMP
from headrace.core.record_batch import Timestamps
from headrace.core.types.object_type_info import ObjectTypeInfo
from headrace.core.types.type_info import Types
from headrace.functions.serialization import TypeSerializer

_TWO_LONGS: Final = struct.Struct(">qq")
_LONG: Final = struct.Struct(">q")


class Window(ABC):
    """A group of records; equal by value and hashable, because it is a key of state."""

    @abstractmethod
    def max_timestamp(self) -> int:
        """Return the last millisecond that belongs to the window."""


W = TypeVar("W", bound=Window)


class MergeCallback(ABC, Generic[W]):
    """Receives windows that are merged."""

    @abstractmethod
    def merge(self, to_be_merged: Iterable[W], merge_result: W) -> None:
        """Replace all of `to_be_merged` by `merge_result`."""


@total_ordering
class TimeWindow(Window):
    """The interval [start, end) in epoch milliseconds; ordered by start, then end.

    The window is clamped to the range of timestamps, which are stored in 64 bits.
    """

    __slots__ = ("end", "start")

    def __init__(self, start: int, end: int) -> None:
        self.start = start if start >= MIN_TIMESTAMP else MIN_TIMESTAMP
        self.end = end if end <= MAX_WATERMARK else MAX_WATERMARK

    def max_timestamp(self) -> int:
        return self.end - 1

    def intersects(self, other: "TimeWindow") -> bool:
        """Return whether they overlap or touch."""
        return self.start <= other.end and self.end >= other.start

    def cover(self, other: "TimeWindow") -> "TimeWindow":
        """Return the smallest window that covers both."""
        return TimeWindow(min(self.start, other.start), max(self.end, other.end))

    @staticmethod
    def get_window_start_with_offset(timestamp: int, offset: int, window_size: int) -> int:
        """Return the start of the window of that size that holds `timestamp`, also for negative times."""
        return timestamp - (timestamp - offset) % window_size

    @staticmethod
    def merge_windows(
        windows: Iterable["TimeWindow"], callback: "MergeCallback[TimeWindow]"
    ) -> None:
        """Call `callback` for every run of at least two windows that overlap or touch, with the window covering it."""
        run: list[TimeWindow] = []
        covering: TimeWindow | None = None
        for window in sorted(windows):
            if covering is not None and covering.intersects(window):
                run.append(window)
                covering = covering.cover(window)
                continue
            _report_run(run, covering, callback)
            run, covering = [window], window
        _report_run(run, covering, callback)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TimeWindow) and self.start == other.start and self.end == other.end

    def __lt__(self, other: object) -> bool:
        if not isinstance(other, TimeWindow):
            raise TypeError(f"a TimeWindow cannot be compared with {type(other).__name__}")
        return (self.start, self.end) < (other.start, other.end)

    def __hash__(self) -> int:
        return hash((self.start, self.end))

    def __reduce__(self) -> tuple[Any, ...]:
        return TimeWindow, (self.start, self.end)

    def __repr__(self) -> str:
        return f"TimeWindow(start={self.start}, end={self.end})"


TIME_WINDOW_TYPE: Final = ObjectTypeInfo(TimeWindow, ["start", "end"], [Types.LONG(), Types.LONG()])
"""Type of time windows in columns: a struct of two longs."""


def _report_run(
    run: list[TimeWindow], covering: TimeWindow | None, callback: "MergeCallback[TimeWindow]"
) -> None:
    if covering is not None and len(run) > 1:
        callback.merge(run, covering)


def window_starts(timestamps: Timestamps, offset: int, window_size: int) -> Timestamps:
    """Return `TimeWindow.get_window_start_with_offset` of each timestamp; shape kept."""
    # By a whole division and in place: the rest of a division takes six times as long.
    starts: Timestamps = timestamps - offset
    starts //= window_size
    starts *= window_size
    starts += offset
    return starts


class CountWindow(Window):
    """The `id`-th window of a key, counted in records; it has no end in time."""

    __slots__ = ("id",)

    def __init__(self, id: int) -> None:
        self.id = id

    def max_timestamp(self) -> int:
        return MAX_WATERMARK

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CountWindow) and self.id == other.id

    def __hash__(self) -> int:
        return hash(self.id)

    def __reduce__(self) -> tuple[Any, ...]:
        return CountWindow, (self.id,)

    def __repr__(self) -> str:
        return f"CountWindow(id={self.id})"


class GlobalWindow(Window):
    """The one window that contains everything."""

    __slots__ = ()

    @staticmethod
    def get() -> "GlobalWindow":
        return _GLOBAL_WINDOW

    def max_timestamp(self) -> int:
        return MAX_WATERMARK

    def __eq__(self, other: object) -> bool:
        return isinstance(other, GlobalWindow)

    def __hash__(self) -> int:
        return 0

    def __reduce__(self) -> tuple[Callable[[], "GlobalWindow"], tuple[()]]:
        return GlobalWindow.get, ()

    def __repr__(self) -> str:
        return "GlobalWindow"


_GLOBAL_WINDOW: Final = GlobalWindow()


class TimeWindowSerializer(TypeSerializer[TimeWindow]):
    """Stores start and end, 8 bytes each, big-endian."""

    def serialize(self, element: TimeWindow, stream: BytesIO) -> None:
        stream.write(_TWO_LONGS.pack(element.start, element.end))

    def deserialize(self, stream: BytesIO) -> TimeWindow:
        return TimeWindow(*_TWO_LONGS.unpack(stream.read(_TWO_LONGS.size)))


class CountWindowSerializer(TypeSerializer[CountWindow]):
    """Stores the id, 8 bytes, big-endian."""

    def serialize(self, element: CountWindow, stream: BytesIO) -> None:
        stream.write(_LONG.pack(element.id))

    def deserialize(self, stream: BytesIO) -> CountWindow:
        return CountWindow(*_LONG.unpack(stream.read(_LONG.size)))


class GlobalWindowSerializer(TypeSerializer[GlobalWindow]):
    """Stores one zero byte."""

    def serialize(self, element: GlobalWindow, stream: BytesIO) -> None:
        stream.write(b"\x00")

    def deserialize(self, stream: BytesIO) -> GlobalWindow:
        stream.read(1)
        return GlobalWindow.get()
