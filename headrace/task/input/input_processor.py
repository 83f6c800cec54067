"""LogicalInput: reads the gate of one input, passes rows to the operator and markers to the watermark valve.

Source: Flink StreamOneInputProcessor, AbstractStreamTaskNetworkInput.
"""

from collections.abc import Callable
from typing import Final, Protocol

from headrace.core.barriers import CancelCheckpointMarker, CheckpointBarrier
from headrace.core.clock import Clock
from headrace.core.elements import (
    EndOfData,
    EndOfOutputChannelState,
    EndOfPartition,
    LatencyMarker,
    StopMode,
    Watermark,
    WatermarkStatus,
)
from headrace.core.errors import ClusterDatasetCorruptedError
from headrace.core.ids import ClusterDataSetId
from headrace.core.record_batch import RecordBatch
from headrace.network.errors import NetworkError
from headrace.network.gates.gate import (
    BarrierAnnouncement,
    BatchElement,
    EventElement,
    GateElement,
    InputGate,
)
from headrace.task.input.watermark_valve import EmitWatermark, ValveAction, WatermarkValve
from headrace.task.paced_rows import PacedRows

CheckpointEvent = CheckpointBarrier | CancelCheckpointMarker | BarrierAnnouncement | EndOfPartition


class RowHandler(Protocol):
    """Handles the rows of an input, and the markers between them."""

    def batch(self, batch: RecordBatch) -> None:
        """Handle rows (num_rows >= 1) between two markers."""
        ...

    def watermark(self, timestamp_ms: int) -> None:
        """Handle a watermark, which is larger than the previous one."""
        ...

    def status(self, is_idle: bool) -> None:
        """Handle a change of idleness."""
        ...

    def latency_marker(self, marker: LatencyMarker) -> None:
        """Handle a latency marker of any channel."""
        ...


class InputHandler(RowHandler, Protocol):
    """Handles the elements of an input: rows, markers and the events of checkpoints."""

    def checkpoint_event(self, channel_index: int, event: CheckpointEvent) -> None:
        """Handle a barrier, cancel marker, announcement or end of partition of a channel."""
        ...


class LogicalInput:
    """Reads one input of the head operator, with one valve over all channels of its gate.

    With `pace_by`, the clock that measures them, batches pass in parts (`PacedRows`). `data_set`: the result of an
    earlier job that is read; if it cannot be, the error is ClusterDatasetCorruptedError.
    """

    def __init__(
        self,
        gate: InputGate,
        handler: InputHandler,
        pace_by: Clock | None = None,
        data_set: ClusterDataSetId | None = None,
    ) -> None:
        self._gate = gate
        self._data_set: Final = data_set
        self._handler = handler
        self._paced: PacedRows | None = None
        if pace_by is not None:
            self._paced = PacedRows(
                pace_by, handler.batch, handler.watermark, handler.status, handler.latency_marker
            )
        self._rows: RowHandler = self._paced or handler
        self._valve = WatermarkValve(gate.number_of_channels)
        self._open_data_count = gate.number_of_channels
        self.stop_mode = StopMode.DRAIN
        """Mode in which the data of the channels ended."""

    @property
    def gate(self) -> InputGate:
        """Gate of this input."""
        return self._gate

    def restore_watermark(self, timestamp_ms: int) -> None:
        """Restore the watermark of the checkpoint; event time never falls below it."""
        self._valve.restore(timestamp_ms)

    @property
    def is_amid_batch(self) -> bool:
        """True while the last batch is not fully processed; nothing else is read meanwhile."""
        return self._paced is not None and self._paced.is_amid_batch

    def go_on_with_batch(self) -> None:
        """Process the next part of the current batch."""
        assert self._paced is not None
        self._paced.go_on()

    @property
    def has_ended(self) -> bool:
        """True if every channel has delivered its end of data."""
        return self._open_data_count == 0

    @property
    def is_finished(self) -> bool:
        """True if every channel has delivered its end of partition."""
        return self._gate.is_finished

    def process_next(self) -> bool:
        """Process one element; return False if there is none."""
        element = self._poll()
        if element is None:
            return False
        self._dispatch(element)
        return True

    def _poll(self) -> GateElement | None:
        try:
            return self._gate.poll()
        except NetworkError as error:
            if self._data_set is None:
                raise
            # Only here is the input known to be at fault: an output that cannot be written raises such errors too.
            raise ClusterDatasetCorruptedError(self._data_set, str(error)) from error

    def process_priority_event(self, wake: Callable[[], None]) -> bool:
        """Process an event that must not wait for room in outputs; if there is none, call `wake` when one comes."""
        if not self._gate.has_priority_event:
            self._gate.on_priority_event(wake)
            return False
        return self.process_next()

    def on_available(self, callback: Callable[[], None]) -> None:
        """Call `callback` on any thread once the gate has an element."""
        if not self._gate.is_finished:
            self._gate.on_available(callback)

    def _dispatch(self, element: BatchElement | EventElement) -> None:
        if isinstance(element, BatchElement):
            self._dispatch_batch(element.channel_index, element)
            return
        match element.event:
            case EndOfData(mode):
                if mode is StopMode.NO_DRAIN:
                    self.stop_mode = mode
                self._open_data_count -= 1
                self._gate.acknowledge_all_data(element.channel_index)
            case (
                EndOfPartition()
                | CheckpointBarrier()
                | CancelCheckpointMarker()
                | BarrierAnnouncement() as event
            ):
                self._handler.checkpoint_event(element.channel_index, event)
            case EndOfOutputChannelState():
                raise AssertionError("the gate does not deliver this element")

    def _dispatch_batch(self, channel_index: int, element: BatchElement) -> None:
        batch = element.batch
        start = 0
        for placed in element.markers:
            if placed.row_offset > start:
                self._rows.batch(batch.slice(start, placed.row_offset - start))
                start = placed.row_offset
            match placed.marker:
                case Watermark(timestamp_ms):
                    self._perform(self._valve.watermark_received(channel_index, timestamp_ms))
                case WatermarkStatus(is_idle):
                    self._perform(self._valve.status_received(channel_index, is_idle))
                case LatencyMarker() as marker:
                    self._rows.latency_marker(marker)
        if start < batch.num_rows:
            self._rows.batch(batch.slice(start))

    def _perform(self, actions: list[ValveAction]) -> None:
        for action in actions:
            if isinstance(action, EmitWatermark):
                self._rows.watermark(action.timestamp_ms)
            else:
                self._rows.status(action.is_idle)
