"""Queues of an asynchronous operator: hold inputs in flight and markers, and release those that may be emitted. Pure.

        put, put_marker ──►  [ input  input | watermark | input  input  input ]  ──► take_ready
                              complete(input, results): in any order

An ordered queue releases inputs in their order. An unordered one is cut into segments by its markers, and releases the
inputs of a segment as they are completed, so that a watermark neither overtakes a record nor is overtaken.
Source: Flink OrderedStreamElementQueue, UnorderedStreamElementQueue.
"""

from collections import deque
from collections.abc import Sequence
from typing import Any, Generic, Protocol, TypeVar

from headrace.core.elements import TimeMarker


class InFlight:
    """An input from its arrival until its results are taken; `results` is None until it is completed."""

    __slots__ = ("results", "segment", "sequence_number", "timestamp_ms", "value")

    def __init__(self, value: Any, timestamp_ms: int) -> None:
        self.value = value
        self.timestamp_ms = timestamp_ms
        self.results: list[Any] | None = None
        self.sequence_number = 0
        self.segment: Any = None


T = TypeVar("T", bound=InFlight)


class AsyncQueue(Protocol[T]):
    """Queue of asynchronous calls, ordered or unordered."""

    @property
    def is_empty(self) -> bool:
        """True if nothing waits, neither inputs nor markers."""
        ...

    def put(self, element: T) -> None:
        """Add an input."""
        ...

    def put_marker(self, marker: TimeMarker) -> None:
        """Add a marker, which no input overtakes and which overtakes no input."""
        ...

    def complete(self, element: T, results: list[Any]) -> None:
        """Set the results of an input in the queue, once."""
        ...

    def take_ready(self) -> Sequence[T | TimeMarker]:
        """Remove and return everything that may be emitted now, in this order."""
        ...

    def inputs(self) -> list[T]:
        """Return the inputs whose results were not taken yet, completed or not, in order of arrival."""
        ...


class OrderedQueue(Generic[T]):
    """Releases results in the order of the inputs."""

    def __init__(self) -> None:
        self._elements: deque[T | TimeMarker] = deque()

    @property
    def is_empty(self) -> bool:
        return not self._elements

    def put(self, element: T) -> None:
        self._elements.append(element)

    def put_marker(self, marker: TimeMarker) -> None:
        self._elements.append(marker)

    def complete(self, element: T, results: list[Any]) -> None:
        assert element.results is None
        element.results = results

    def take_ready(self) -> Sequence[T | TimeMarker]:
        ready: list[T | TimeMarker] = []
        elements = self._elements
        while elements:
            head = elements[0]
            if isinstance(head, InFlight) and head.results is None:
                break
            ready.append(elements.popleft())
        return ready

    def inputs(self) -> list[T]:
        return [element for element in self._elements if isinstance(element, InFlight)]


class _Segment(Generic[T]):
    """Markers, and the inputs between them and the next ones."""

    __slots__ = ("completed", "markers", "pending")

    def __init__(self) -> None:
        self.markers: deque[TimeMarker] = deque()
        self.pending: dict[T, None] = {}
        self.completed: deque[T] = deque()

    @property
    def has_inputs(self) -> bool:
        return bool(self.pending or self.completed)


class UnorderedQueue(Generic[T]):
    """Releases results as they are completed, between two markers."""

    def __init__(self) -> None:
        self._segments: deque[_Segment[T]] = deque([_Segment[T]()])
        self._input_count = 0

    @property
    def is_empty(self) -> bool:
        head = self._segments[0]
        return len(self._segments) == 1 and not head.markers and not head.has_inputs

    def put(self, element: T) -> None:
        self._input_count += 1
        element.sequence_number = self._input_count
        element.segment = self._segments[-1]
        self._segments[-1].pending[element] = None

    def put_marker(self, marker: TimeMarker) -> None:
        if self._segments[-1].has_inputs:
            self._segments.append(_Segment())
        self._segments[-1].markers.append(marker)

    def complete(self, element: T, results: list[Any]) -> None:
        assert element.results is None
        element.results = results
        segment: _Segment[T] = element.segment
        del segment.pending[element]
        segment.completed.append(element)

    def take_ready(self) -> Sequence[T | TimeMarker]:
        ready: list[T | TimeMarker] = []
        while True:
            head = self._segments[0]
            ready += head.markers
            ready += head.completed
            head.markers.clear()
            head.completed.clear()
            if head.pending or len(self._segments) == 1:
                return ready
            self._segments.popleft()

    def inputs(self) -> list[T]:
        waiting = [
            element
            for segment in self._segments
            for element in (*segment.pending, *segment.completed)
        ]
        return sorted(waiting, key=lambda element: element.sequence_number)
