"""Assigners of sessions: windows that each record opens and that grow together while the gaps between records last."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable
from typing import Any, TypeVar

from headrace.core.types.time_values import to_millis
from headrace.functions.assigners import (
    MergingWindowAssigner,
    WindowAssignerContext,
    require_timestamp,
)
from headrace.functions.serialization import TypeSerializer
from headrace.functions.time_assigners import Amount
from headrace.functions.triggers import EventTimeTrigger, ProcessingTimeTrigger, Trigger
from headrace.functions.windows import MergeCallback, TimeWindow, TimeWindowSerializer

T = TypeVar("T")


class SessionWindowTimeGapExtractor(ABC):
    """Says for each record how long its session waits for the next one."""

    @abstractmethod
    def extract(self, element: Any) -> int:
        """Return the gap in ms, above 0."""


class SessionWindows(MergingWindowAssigner[T, TimeWindow]):
    """What all session assigners share: a record's window begins at its time and lasts for its gap."""

    @abstractmethod
    def gap_of(self, element: T) -> int:
        """Return the gap of a record in ms, above 0."""

    @abstractmethod
    def start_of(self, timestamp: int, context: WindowAssignerContext) -> int:
        """Return the time at which the window of a record begins."""

    def assign_windows(
        self, element: T, timestamp: int, context: WindowAssignerContext
    ) -> Collection[TimeWindow]:
        start = self.start_of(timestamp, context)
        return [TimeWindow(start, start + self.gap_of(element))]

    def merge_windows(
        self, windows: Iterable[TimeWindow], callback: MergeCallback[TimeWindow]
    ) -> None:
        TimeWindow.merge_windows(windows, callback)

    def get_default_trigger(self, env: Any) -> Trigger[T, TimeWindow]:
        return EventTimeTrigger() if self.is_event_time() else ProcessingTimeTrigger()

    def get_window_serializer(self) -> TypeSerializer[TimeWindow]:
        return TimeWindowSerializer()


class _InEventTime(SessionWindows[T]):
    """Windows begin at the record's timestamp."""

    def start_of(self, timestamp: int, context: WindowAssignerContext) -> int:
        return require_timestamp(timestamp)

    def is_event_time(self) -> bool:
        return True


class _OnTheClock(SessionWindows[T]):
    """Windows begin when the record comes."""

    def start_of(self, timestamp: int, context: WindowAssignerContext) -> int:
        return context.get_current_processing_time()

    def is_event_time(self) -> bool:
        return False


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
    """Sessions on the clock with a gap per record."""

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
    """Sessions on the clock."""

    @staticmethod
    def with_gap(size: Amount) -> "ProcessingTimeSessionWindows[Any]":
        return ProcessingTimeSessionWindows(to_millis(size))

    @staticmethod
    def with_dynamic_gap(
        extractor: SessionWindowTimeGapExtractor,
    ) -> DynamicProcessingTimeSessionWindows[Any]:
        return DynamicProcessingTimeSessionWindows(extractor)
