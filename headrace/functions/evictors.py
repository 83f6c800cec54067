"""Evictors: remove records from a window before or after its function is called.

A window with an evictor keeps every record with its timestamp, even if a reduce or aggregate function could fold them.
"""

from abc import ABC, abstractmethod
from datetime import timedelta
from typing import Any, Generic, NamedTuple, TypeVar

from headrace.core.elements import MIN_TIMESTAMP
from headrace.core.types.time_values import Duration, Time, to_millis
from headrace.functions.runtime_context import UserMetricGroup
from headrace.functions.windowing.triggers import Delta, delta_between, shown_delta
from headrace.functions.windows import Window

T = TypeVar("T")
W = TypeVar("W", bound=Window)


class TimestampedValue(NamedTuple):
    """A record of a window; `timestamp` is epoch ms, or the smallest 64-bit number without a timestamp."""

    value: Any
    timestamp: int

    def has_timestamp(self) -> bool:
        """Return whether the stream has event time."""
        return self.timestamp != MIN_TIMESTAMP


class EvictorContext(ABC):
    """Clocks and metrics. Times are epoch ms."""

    @abstractmethod
    def get_current_processing_time(self) -> int: ...

    @abstractmethod
    def get_metric_group(self) -> UserMetricGroup: ...

    @abstractmethod
    def get_current_watermark(self) -> int: ...


class Evictor(ABC, Generic[T, W]):
    """Base of all evictors; picklable.

    Both methods are called at each firing with the window's records in order of arrival and their number, and change
    the list in place. The window keeps the remaining records.
    """

    EvictorContext = EvictorContext

    @abstractmethod
    def evict_before(
        self,
        elements: list[TimestampedValue],
        size: int,
        window: W,
        evictor_context: EvictorContext,
    ) -> None:
        """Remove records that the window function must not see."""

    @abstractmethod
    def evict_after(
        self,
        elements: list[TimestampedValue],
        size: int,
        window: W,
        evictor_context: EvictorContext,
    ) -> None:
        """Remove records that the window function has seen and the next firing must not see."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class OneSidedEvictor(Evictor[T, Window]):
    """Base class of evictors that evict either before the window function or, with `do_evict_after`, after it."""

    def __init__(self, do_evict_after: bool) -> None:
        self.do_evict_after = do_evict_after

    @abstractmethod
    def evict(self, elements: list[TimestampedValue]) -> None:
        """Remove the elements to evict."""

    def evict_before(
        self,
        elements: list[TimestampedValue],
        size: int,
        window: Window,
        evictor_context: EvictorContext,
    ) -> None:
        if not self.do_evict_after:
            self.evict(elements)

    def evict_after(
        self,
        elements: list[TimestampedValue],
        size: int,
        window: Window,
        evictor_context: EvictorContext,
    ) -> None:
        if self.do_evict_after:
            self.evict(elements)


class CountEvictor(OneSidedEvictor[T]):
    """Evictor that keeps the last `max_count` records."""

    def __init__(self, max_count: int, do_evict_after: bool = False) -> None:
        if max_count < 0:
            raise ValueError(f"CountEvictor must keep 0 or more records, not {max_count}")
        super().__init__(do_evict_after)
        self.max_count = max_count

    @staticmethod
    def of(max_count: int, do_evict_after: bool = False) -> "CountEvictor[Any]":
        return CountEvictor(max_count, do_evict_after)

    def evict(self, elements: list[TimestampedValue]) -> None:
        del elements[: max(0, len(elements) - self.max_count)]

    def __repr__(self) -> str:
        return f"CountEvictor({self.max_count})"


class TimeEvictor(OneSidedEvictor[T]):
    """Evictor that keeps records less than `window_size` ms older than the newest one; all, without timestamps."""

    def __init__(self, window_size: int, do_evict_after: bool = False) -> None:
        super().__init__(do_evict_after)
        if window_size < 0:
            raise ValueError(f"TimeEvictor's window must be at least 0 ms, not {window_size} ms")
        self.window_size = window_size

    @staticmethod
    def of(
        window_size: Time | Duration | timedelta, do_evict_after: bool = False
    ) -> "TimeEvictor[Any]":
        return TimeEvictor(to_millis(window_size), do_evict_after)

    def evict(self, elements: list[TimestampedValue]) -> None:
        if elements and elements[0].has_timestamp():
            cutoff = max(one.timestamp for one in elements) - self.window_size
            elements[:] = [one for one in elements if one.timestamp > cutoff]

    def __repr__(self) -> str:
        return f"TimeEvictor({self.window_size})"


class DeltaEvictor(OneSidedEvictor[T]):
    """Evictor that keeps records less than `threshold` away from the last one, as measured by a DeltaFunction."""

    def __init__(
        self, threshold: float, delta_function: Delta, do_evict_after: bool = False
    ) -> None:
        super().__init__(do_evict_after)
        delta_between(delta_function)
        self.threshold = threshold
        self.delta_function = delta_function

    @staticmethod
    def of(
        threshold: float, delta_function: Delta, do_evict_after: bool = False
    ) -> "DeltaEvictor[Any]":
        return DeltaEvictor(threshold, delta_function, do_evict_after)

    def evict(self, elements: list[TimestampedValue]) -> None:
        if elements:
            delta, last = delta_between(self.delta_function), elements[-1].value
            elements[:] = [one for one in elements if not delta(one.value, last) >= self.threshold]

    def __repr__(self) -> str:
        return f"DeltaEvictor({shown_delta(self.delta_function)}, {self.threshold})"
