"""InputGate and InputChannel: the input of an operator, and its connection to one subpartition each.

A gate reads its channels in turn, one element at a time. All kinds of channels deliver the same elements for the same
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
    """Announces to the gate that a barrier which may time out has arrived behind other elements, as element `sequence`.

    Made by the receiver, never sent. Source: Flink EventAnnouncement.
    """

    barrier: CheckpointBarrier
    sequence: int


class EndOfInputChannelState(msgspec.Struct, frozen=True, gc=False):
    """Ends the restored rows of a channel. Made for the gate, never sent.

    Source: Flink EndOfInputChannelStateEvent.
    """


DeliveredElement = SealedBatch | StreamEvent | BarrierAnnouncement
ChannelElement = DeliveredElement | EndOfInputChannelState


class InputChannel(Protocol):
    """One channel of a gate. `request` and `poll` are called on the task's thread, `close` on any."""

    @property
    def is_local(self) -> bool:
        """Return whether the channel reads a partition of this process."""
        ...

    @property
    def queued_count(self) -> int:
        """Number of queued elements."""
        ...

    @property
    def queued_bytes(self) -> int:
        """Bytes of the queued batches; a snapshot."""
        ...

    @property
    def has_priority_event(self) -> bool:
        """Return whether the next element is an event with priority. Any thread; a snapshot."""
        ...

    def request(self) -> None:
        """Start reading the subpartition."""
        ...

    def poll(self) -> ChannelElement | None:
        """Return the next element or None; raise the channel's error if it has failed."""
        ...

    def resume(self) -> None:
        """Tell the producer to continue after an event that blocks it; once per such event. Task's thread."""
        ...

    def prioritise(self, sequence: int) -> None:
        """Deliver the announced barrier with this sequence number before all elements ahead of it. Task's thread."""
        ...

    def start_capture(self, checkpoint_id: int) -> None:
        """Start to capture the elements ahead of this checkpoint's barrier, including those that arrive before it.

        Ends the capture for any other checkpoint. Task's thread.
        """
        ...

    def stop_capture(self, checkpoint_id: int) -> list[CapturedBatch]:
        """Return and forget the batches captured for this checkpoint, in order. Task's thread."""
        ...

    def acknowledge_all_data(self) -> None:
        """Tell the producer that all rows before EndOfData were processed; once. Task's thread."""
        ...

    def request_in_flight_rows(self, in_flight_rows: int) -> None:
        """Announce the wanted number of rows in flight between the two tasks; > 0. Task's thread."""
        ...

    def close(self) -> None:
        """Stop reading. Idempotent."""
        ...


class BatchElement(msgspec.Struct, frozen=True, gc=False):
    """Rows of one channel with the markers between them; `batch` has no rows if there are only markers."""

    channel_index: int
    batch: RecordBatch
    markers: tuple[PlacedMarker, ...]


class EventElement(msgspec.Struct, frozen=True, gc=False):
    """An event of one channel."""

    channel_index: int
    event: StreamEvent | BarrierAnnouncement


GateElement = BatchElement | EventElement


class InputGate(Protocol):
    """Channels of one edge, or of several edges into the same input. `poll` is called on the task's thread."""

    @property
    def number_of_channels(self) -> int:
        """Number of channels, open or ended."""
        ...

    @property
    def is_finished(self) -> bool:
        """Return whether every channel has delivered its EndOfPartition."""
        ...

    @property
    def is_available(self) -> bool:
        """Return whether `poll` may have an element, or the gate is finished or closed. Any thread."""
        ...

    @property
    def has_priority_event(self) -> bool:
        """Return whether `poll` would return an event with priority. Any thread; a snapshot."""
        ...

    def poll(self) -> GateElement | None:
        """Return the next element of the channel whose turn it is, or None if no element is queued.

        Events with priority come first. Raises the error of a channel at its turn, and CancelTaskException after close.
        """
        ...

    def on_available(self, callback: Callable[[], None]) -> None:
        """Call `callback` once, on any thread, as soon as the gate is available; immediately if it is available now."""
        ...

    def on_priority_event(self, callback: Callable[[], None]) -> None:
        """Call `callback` once, on any thread, as soon as an event with priority is queued.

        Immediately if one is queued now.
        """
        ...

    def resume(self, channel_index: int) -> None:
        """Tell the producer of a channel to continue after an event that blocks it. Task's thread."""
        ...

    def prioritise(self, channel_index: int, sequence: int) -> None:
        """Deliver an announced barrier before all elements ahead of it. Task's thread."""
        ...

    def acknowledge_all_data(self, channel_index: int) -> None:
        """Tell a producer that all rows before its EndOfData were processed. Task's thread."""
        ...
