"""Reads the gates of one logical input: rows to the operator, markers through the valve, ends counted.

Several gates feed one input where streams were united.
Source: Flink StreamOneInputProcessor, AbstractStreamTaskNetworkInput.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from headrace.core.elements import EndOfData, EndOfPartition, Watermark, WatermarkStatus
from headrace.core.record_batch import RecordBatch
from headrace.network.gate import BatchElement, EventElement, InputGate
from headrace.task.watermark_valve import EmitWatermark, ValveAction, WatermarkValve


class InputHandler(Protocol):
    """What an input does with what it read."""

    def batch(self, batch: RecordBatch) -> None:
        """Rows (num_rows >= 1) between two markers."""
        ...

    def watermark(self, timestamp_ms: int) -> None:
        """The input's watermark grew."""
        ...

    def status(self, is_idle: bool) -> None:
        """The input's idleness changed."""
        ...


class LogicalInput:
    """One input of the head operator: the gates of every edge that leads to it, one valve over all their channels."""

    def __init__(self, gates: Sequence[InputGate], handler: InputHandler) -> None:
        self._gates = list(gates)
        self._handler = handler
        self._offsets: list[int] = []
        channel_count = 0
        for gate in gates:
            self._offsets.append(channel_count)
            channel_count += gate.number_of_channels
        self._valve = WatermarkValve(channel_count)
        self._open_data_count = channel_count
        self._next = 0

    @property
    def has_ended(self) -> bool:
        """Whether every channel has delivered its end of data."""
        return self._open_data_count == 0

    @property
    def is_finished(self) -> bool:
        """Whether every channel has delivered its end of partition."""
        return all(gate.is_finished for gate in self._gates)

    def process_next(self) -> bool:
        """Take one element from the next gate that has one, in turn; False if none has."""
        for step in range(len(self._gates)):
            index = (self._next + step) % len(self._gates)
            element = self._gates[index].poll()
            if element is not None:
                self._next = (index + 1) % len(self._gates)
                self._dispatch(self._offsets[index], element)
                return True
        return False

    def on_available(self, callback: Callable[[], None]) -> None:
        """Have `callback` called, from any thread, once one of the gates has something."""
        for gate in self._gates:
            if not gate.is_finished:
                gate.on_available(callback)

    def _dispatch(self, offset: int, element: BatchElement | EventElement) -> None:
        if isinstance(element, BatchElement):
            self._dispatch_batch(offset + element.channel_index, element)
            return
        match element.event:
            case EndOfData():
                self._open_data_count -= 1
            case EndOfPartition():
                pass

    def _dispatch_batch(self, channel_index: int, element: BatchElement) -> None:
        batch = element.batch
        start = 0
        for placed in element.markers:
            if placed.row_offset > start:
                self._handler.batch(batch.slice(start, placed.row_offset - start))
                start = placed.row_offset
            match placed.marker:
                case Watermark(timestamp_ms):
                    self._perform(self._valve.watermark_received(channel_index, timestamp_ms))
                case WatermarkStatus(is_idle):
                    self._perform(self._valve.status_received(channel_index, is_idle))
        if start < batch.num_rows:
            self._handler.batch(batch.slice(start))

    def _perform(self, actions: list[ValveAction]) -> None:
        for action in actions:
            if isinstance(action, EmitWatermark):
                self._handler.watermark(action.timestamp_ms)
            else:
                self._handler.status(action.is_idle)
