"""InputGate: everything one logical input reads, one element at a time, channels in turn.

Source: Flink InputGate.
"""

from collections.abc import Callable
from typing import Protocol

import msgspec

from headrace.core.elements import PlacedMarker, StreamEvent
from headrace.core.record_batch import RecordBatch
from headrace.network.channels import BarrierAnnouncement


class BatchElement(msgspec.Struct, frozen=True, gc=False):
    """Rows of one channel with the markers between them; `batch` may have no rows, then there are only markers."""

    channel_index: int
    batch: RecordBatch
    markers: tuple[PlacedMarker, ...]


class EventElement(msgspec.Struct, frozen=True, gc=False):
    """An event of one channel."""

    channel_index: int
    event: StreamEvent | BarrierAnnouncement


GateElement = BatchElement | EventElement


class InputGate(Protocol):
    """Channels of one edge, or of several edges that lead to the same input. `poll` is for the task's thread."""

    @property
    def number_of_channels(self) -> int:
        """Channels, open or ended."""
        ...

    @property
    def is_finished(self) -> bool:
        """Whether every channel has delivered its EndOfPartition."""
        ...

    @property
    def is_available(self) -> bool:
        """Whether `poll` may have something, or the gate is finished or closed. Any thread."""
        ...

    @property
    def has_priority_event(self) -> bool:
        """Whether `poll` would return an event with priority. Any thread; a moment's reading."""
        ...

    def poll(self) -> GateElement | None:
        """Return the next element of the channel whose turn it is, or None if there is nothing now.

        Events with priority come first. Raises the error of a channel when its turn comes, and CancelTaskException
        after close.
        """
        ...

    def on_available(self, callback: Callable[[], None]) -> None:
        """Call `callback` once, from any thread, as soon as the gate is available; now if it is."""
        ...

    def on_priority_event(self, callback: Callable[[], None]) -> None:
        """Call `callback` once, from any thread, as soon as an event with priority waits; now if one does."""
        ...

    def resume(self, channel_index: int) -> None:
        """Have the producer of a channel go on after an event that blocks upstream. The task's thread."""
        ...

    def prioritise(self, channel_index: int, sequence: int) -> None:
        """Have an announced barrier handed out before all that stands in front of it. The task's thread."""
        ...

    def acknowledge_all_data(self, channel_index: int) -> None:
        """All rows of a channel before its EndOfData were processed. The task's thread."""
        ...
