"""InputGate and InputChannel: what one logical input reads, and where it reads one subpartition.

A gate gives its channels turns, one element at a time. All kinds of channels deliver the same elements for the same
trace of the producer, wherever it is. Source: Flink InputGate, InputChannel.
"""

from collections.abc import Callable
from typing import Protocol

import msgspec

from headrace.core.barriers import CheckpointBarrier
from headrace.core.elements import PlacedMarker, StreamEvent
from headrace.core.record_batch import RecordBatch
from headrace.network.batches.sealed_batch import SealedBatch
from headrace.network.gates.in_flight_input import CapturedBatch


class BarrierAnnouncement(msgspec.Struct, frozen=True, gc=False):
    """A barrier that may time out has arrived behind other elements; element `sequence` of its channel.

    Made by the receiver, never on the wire. Source: Flink EventAnnouncement.
    """

    barrier: CheckpointBarrier
    sequence: int


class EndOfInputChannelState(msgspec.Struct, frozen=True, gc=False):
    """End of the restored rows of a channel. For the gate, never on the wire.

    Source: Flink EndOfInputChannelStateEvent.
    """


DeliveredElement = SealedBatch | StreamEvent | BarrierAnnouncement
ChannelElement = DeliveredElement | EndOfInputChannelState


class InputChannel(Protocol):
    """One channel of a gate. `request` and `poll` are for the task's thread, `close` for any."""

    @property
    def is_local(self) -> bool:
        """Return whether it reads a partition of this process."""
        ...

    @property
    def queued_count(self) -> int:
        """Elements that wait."""
        ...

    @property
    def queued_bytes(self) -> int:
        """Bytes of the batches that wait. A moment's reading."""
        ...

    @property
    def has_priority_event(self) -> bool:
        """Return whether the next element is an event with priority. Any thread; a moment's reading."""
        ...

    def request(self) -> None:
        """Begin to read."""
        ...

    def poll(self) -> ChannelElement | None:
        """Return the next element if there is one; raise the channel's error."""
        ...

    def resume(self) -> None:
        """Have the producer go on after an event that blocks upstream. Once per such event; the task's thread."""
        ...

    def prioritise(self, sequence: int) -> None:
        """Have an announced barrier handed out before all that stands in front of it. The task's thread."""
        ...

    def start_capture(self, checkpoint_id: int) -> None:
        """Keep what stands in front of the barrier of this checkpoint, and what comes until it does.

        Ends the capture for another checkpoint. The task's thread.
        """
        ...

    def stop_capture(self, checkpoint_id: int) -> list[CapturedBatch]:
        """Return what was captured for this checkpoint, in order, and forget it. The task's thread."""
        ...

    def acknowledge_all_data(self) -> None:
        """Tell the producer that all rows before EndOfData were processed. Once; the task's thread."""
        ...

    def request_in_flight_rows(self, in_flight_rows: int) -> None:
        """Say how many rows there should be between the two tasks; > 0. The task's thread."""
        ...

    def close(self) -> None:
        """Stop reading. Idempotent."""
        ...


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
        """Return whether every channel has delivered its EndOfPartition."""
        ...

    @property
    def is_available(self) -> bool:
        """Return whether `poll` may have something, or the gate is finished or closed. Any thread."""
        ...

    @property
    def has_priority_event(self) -> bool:
        """Return whether `poll` would return an event with priority. Any thread; a moment's reading."""
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
        """Tell a producer that all rows before its EndOfData were processed. The task's thread."""
        ...
