"""A SingleInputGate whose channels have what a test gives them."""

from collections import deque
from collections.abc import Callable
from functools import partial

from headrace.core.elements import EndOfData, StopMode, StreamEvent
from headrace.core.record_batch import RecordBatch
from headrace.network.batches.sealed_batch import SealedBatch
from headrace.network.gates.gate import BatchElement, GateElement
from headrace.network.gates.in_flight_input import CapturedBatch
from headrace.network.gates.single_input_gate import SingleInputGate
from headrace.network.gates.union_gate import UnionInputGate
from tests.unit.network.exchange import NUMBERS

BARRIER = EndOfData(StopMode.NO_DRAIN)
"""Stands for an event with priority."""


def rows(number: int) -> SealedBatch:
    return SealedBatch(RecordBatch.of_rows(NUMBERS, [number]).to_arrow(), (), 8)


class ScriptedChannel:
    """A channel that has what the test gives it."""

    is_local = True

    def __init__(self, notify: Callable[[], None]) -> None:
        self._notify = notify
        self.priority: deque[StreamEvent] = deque()
        self.queue: deque[SealedBatch | StreamEvent] = deque()
        self.calls: list[str] = []
        self.captured: list[CapturedBatch] = []

    @property
    def queued_count(self) -> int:
        return len(self.priority) + len(self.queue)

    @property
    def queued_bytes(self) -> int:
        return 0

    @property
    def has_priority_event(self) -> bool:
        return bool(self.priority)

    def give(self, element: SealedBatch | StreamEvent) -> None:
        self.queue.append(element)
        self._notify()

    def give_priority(self, event: StreamEvent) -> None:
        self.priority.append(event)
        self._notify()

    def request(self) -> None:
        self.calls.append("request")

    def poll(self) -> SealedBatch | StreamEvent | None:
        if self.priority:
            return self.priority.popleft()
        return self.queue.popleft() if self.queue else None

    def resume(self) -> None:
        self.calls.append("resume")

    def prioritise(self, sequence: int) -> None:
        self.calls.append(f"prioritise {sequence}")

    def start_capture(self, checkpoint_id: int) -> None:
        self.calls.append(f"start {checkpoint_id}")

    def stop_capture(self, checkpoint_id: int) -> list[CapturedBatch]:
        self.calls.append(f"stop {checkpoint_id}")
        return self.captured

    def acknowledge_all_data(self) -> None:
        self.calls.append("acknowledge")

    def request_in_flight_rows(self, in_flight_rows: int) -> None:
        self.calls.append(f"bytes {in_flight_rows}")

    def close(self) -> None:
        self.calls.append("close")


class Gate:
    """A SingleInputGate over scripted channels."""

    def __init__(self, channel_count: int) -> None:
        self.gate = SingleInputGate(None)
        self.scripted = {
            index: ScriptedChannel(partial(self.gate.notify, index))
            for index in range(channel_count)
        }
        self.gate.serve(list(self.scripted.values()))
        self.gate.read_as(NUMBERS)


def polled(gate: SingleInputGate | UnionInputGate) -> list[tuple[int, object]]:
    """Everything that is there: channel and number, or channel and event."""
    found: list[tuple[int, object]] = []
    while (element := gate.poll()) is not None:
        found.append(told(element))
    return found


def told(element: GateElement) -> tuple[int, object]:
    if isinstance(element, BatchElement):
        return element.channel_index, element.batch.rows()[0]
    return element.channel_index, element.event


def rows_in(batch: CapturedBatch) -> list[int]:
    arrow = batch.read()
    return [] if arrow is None else arrow.column(0).to_pylist()
