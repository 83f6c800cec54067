"""PipelinedApproximateSubpartition: a queue whose consumer may be replaced while the producer goes on.

Rows that a failed consumer had read are lost; its successor begins with the next whole batch, and
its channel counts elements from zero. No batch is cut within a record, so that no partial record must be skipped.
Without a consumer, the queue fills and the producer is back-pressured. A consumer that attaches after the end of data
is sent EndOfData again, and the producer is told once that all rows were processed.
Source: Flink PipelinedApproximateSubpartition and its view.
"""

from collections.abc import Callable
from typing import Final

from headrace.core.elements import EndOfData, EndOfPartition
from headrace.network.partitions.pipelined_subpartition import PipelinedSubpartition
from headrace.network.partitions.result_subpartition import Element, QueuedEvent, Stalled


class PipelinedApproximateSubpartition(PipelinedSubpartition):
    """Queue between one producer and a sequence of consumers; threads as in PipelinedSubpartition."""

    _end_of_data: EndOfData | None = None
    _is_acknowledged = False

    def create_view(
        self, listener: Callable[[], None], segment_size: int
    ) -> "PipelinedApproximateSubpartitionView":
        """Attach a consumer in place of the previous one, whose view returns no more elements."""
        with self._lock:
            self._is_blocked = False
            if self._end_of_data is not None:
                self._queue.insert(self._priority_count, QueuedEvent(self._end_of_data))
                self._end_of_data = None
            view = PipelinedApproximateSubpartitionView(self)
            calls = self._attach(view, listener, segment_size)
        for call in calls:
            call()
        return view

    def note_end_of_data(self, event: EndOfData) -> None:
        """Record that the consumer has received EndOfData."""
        self._end_of_data = event

    def acknowledge_all_data(self) -> None:
        """Record that all rows were processed; only the first acknowledgement counts."""
        with self._lock:
            is_first, self._is_acknowledged = not self._is_acknowledged, True
        if is_first:
            super().acknowledge_all_data()

    def is_current(self, view: "PipelinedApproximateSubpartitionView") -> bool:
        """Return whether `view` is the current one."""
        return self._view is view

    def detach(self, view: "PipelinedApproximateSubpartitionView") -> None:
        """Detach a consumer that left early; queued data stays for the next one."""
        with self._lock:
            if self._view is view:
                self._view = None
                self._is_blocked = False


class PipelinedApproximateSubpartitionView:
    """ResultSubpartitionView of the queue, until another view replaces it."""

    def __init__(self, subpartition: PipelinedApproximateSubpartition) -> None:
        self._subpartition = subpartition
        self._has_ended = False
        self.acknowledge_all_data: Final = subpartition.acknowledge_all_data
        self.notify_in_flight_rows: Final = subpartition.notify_in_flight_rows

    @property
    def queued_count(self) -> int:
        return self._subpartition.queued_count if self._is_current else 0

    @property
    def queued_bytes(self) -> int:
        return self._subpartition.queued_bytes if self._is_current else 0

    @property
    def has_priority_event(self) -> bool:
        return self._is_current and self._subpartition.has_priority_event

    @property
    def backlog(self) -> int:
        return self._subpartition.backlog if self._is_current else 0

    def poll(self, credit: int) -> Element | Stalled | None:
        """Return the next element, or None once this view was replaced."""
        if not self._is_current:
            return None
        element = self._subpartition.poll(credit)
        if isinstance(element, QueuedEvent):
            self._has_ended = isinstance(element.event, EndOfPartition)
            if isinstance(element.event, EndOfData):
                self._subpartition.note_end_of_data(element.event)
        return element

    def resume(self) -> None:
        if self._is_current:
            self._subpartition.resume()

    def release(self) -> None:
        """Leave the subpartition; release it if the consumer has read it to the end."""
        if self._has_ended:
            self._subpartition.release()
        else:
            self._subpartition.detach(self)

    @property
    def _is_current(self) -> bool:
        return self._subpartition.is_current(self)
