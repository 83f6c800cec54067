"""Gates: whose turn it is, who is told, and channels that begin as something else."""

from collections import deque
from collections.abc import Callable
from functools import partial

from hypothesis import given
from hypothesis import strategies as st

from headrace.core.elements import EndOfData, EndOfPartition, StopMode, StreamEvent
from headrace.core.ids import ResourceId
from headrace.core.record_batch import RecordBatch
from headrace.core.shuffle_descriptors import (
    InputChannelDescriptor,
    ShuffleDescriptor,
    TaskManagerLocation,
)
from headrace.network.channels import InputChannel, ReceivedBatch
from headrace.network.gate import BatchElement, EventElement, GateElement
from headrace.network.input_capture import CapturedBatch
from headrace.network.single_input_gate import SingleInputGate
from headrace.network.union_gate import UnionInputGate
from headrace.network.unknown_channel import UnknownInputChannel
from tests.unit.network.exchange import NUMBERS, partition_id

BARRIER = EndOfData(StopMode.NO_DRAIN)
"""Stands for an event with priority."""


def rows(number: int) -> ReceivedBatch:
    return ReceivedBatch(RecordBatch.of_rows(NUMBERS, [number]).to_arrow(), (), 1, 8)


class ScriptedChannel:
    """A channel that has what the test gives it."""

    is_local = True

    def __init__(self, notify: Callable[[], None]) -> None:
        self._notify = notify
        self.priority: deque[StreamEvent] = deque()
        self.queue: deque[ReceivedBatch | StreamEvent] = deque()
        self.calls: list[str] = []

    @property
    def queued_count(self) -> int:
        return len(self.priority) + len(self.queue)

    @property
    def has_priority_event(self) -> bool:
        return bool(self.priority)

    def give(self, element: ReceivedBatch | StreamEvent) -> None:
        self.queue.append(element)
        self._notify()

    def give_priority(self, event: StreamEvent) -> None:
        self.priority.append(event)
        self._notify()

    def request(self) -> None:
        self.calls.append("request")

    def poll(self) -> ReceivedBatch | StreamEvent | None:
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
        return []

    def acknowledge_all_data(self) -> None:
        self.calls.append("acknowledge")

    def request_in_flight_bytes(self, in_flight_bytes: int) -> None:
        self.calls.append(f"bytes {in_flight_bytes}")

    def send_task_event(self, event: bytes) -> None:
        self.calls.append(f"event {event.decode()}")

    def close(self) -> None:
        self.calls.append("close")


HERE = TaskManagerLocation(ResourceId("here"), "127.0.0.1", 1, None, "host")


class Gate:
    """A SingleInputGate over scripted channels, of which `unknown` ones are not placed yet."""

    def __init__(self, channel_count: int, unknown: tuple[int, ...] = ()) -> None:
        self.scripted: dict[int, ScriptedChannel] = {}
        self.gate = SingleInputGate(None, self._place)
        self.gate.serve(
            [
                InputChannelDescriptor(
                    ShuffleDescriptor(partition_id(k), None if k in unknown else HERE), 0
                )
                for k in range(channel_count)
            ]
        )
        self.gate.read_as(NUMBERS)

    def _place(
        self, gate: SingleInputGate, index: int, descriptor: InputChannelDescriptor
    ) -> InputChannel:
        if descriptor.shuffle.location is None:
            return UnknownInputChannel()
        self.scripted[index] = ScriptedChannel(partial(gate.notify, index))
        return self.scripted[index]


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


def test_channels_are_read_in_turn_one_element_each() -> None:
    made = Gate(3)
    for number in range(3):
        for index in range(3):
            made.scripted[index].give(rows(number))
    assert [index for index, _ in polled(made.gate)] == [0, 1, 2] * 3


def test_an_event_with_priority_overtakes_all_channels_but_not_its_like() -> None:
    made = Gate(4)
    for index in range(4):
        made.scripted[index].give(rows(index))
    made.scripted[2].give_priority(BARRIER)
    made.scripted[1].give_priority(BARRIER)
    assert made.gate.has_priority_event
    assert polled(made.gate) == [(2, BARRIER), (1, BARRIER), (0, 0), (3, 3), (2, 2), (1, 1)]
    assert not made.gate.has_priority_event


def test_whoever_waits_for_priority_is_told_once_and_not_of_rows() -> None:
    made, calls = Gate(2), []
    made.gate.on_priority_event(lambda: calls.append("urgent"))
    made.scripted[0].give(rows(1))
    assert calls == []
    made.scripted[0].give_priority(BARRIER)
    made.scripted[1].give_priority(BARRIER)
    assert calls == ["urgent"]
    made.gate.on_priority_event(lambda: calls.append("at once"))
    assert calls == ["urgent", "at once"]


def test_a_union_numbers_channels_through_and_reads_gates_in_turn() -> None:
    first, second = Gate(2), Gate(1)
    union = UnionInputGate([first.gate, second.gate])
    assert union.number_of_channels == 3
    for number in range(2):
        first.scripted[0].give(rows(number))
        first.scripted[1].give(rows(10 + number))
        second.scripted[0].give(rows(20 + number))
    assert polled(union) == [(0, 0), (2, 20), (1, 10), (2, 21), (0, 1), (1, 11)]
    union.resume(1)
    union.acknowledge_all_data(2)
    assert (first.scripted[1].calls, second.scripted[0].calls) == (["resume"], ["acknowledge"])


def test_a_union_gives_priority_to_the_gate_that_has_it() -> None:
    first, second = Gate(1), Gate(1)
    union = UnionInputGate([first.gate, second.gate])
    first.scripted[0].give(rows(1))
    second.scripted[0].give_priority(BARRIER)
    assert union.has_priority_event
    assert polled(union) == [(1, BARRIER), (0, 1)]


def test_a_union_is_finished_when_all_its_gates_are_and_says_so() -> None:
    first, second, calls = Gate(1), Gate(1), []
    union = UnionInputGate([first.gate, second.gate])
    first.scripted[0].give(EndOfPartition())
    assert polled(union) == [(0, EndOfPartition())]
    assert not union.is_finished
    union.on_available(lambda: calls.append("available"))
    assert calls == []
    second.scripted[0].give(EndOfPartition())
    assert calls == ["available"]
    assert polled(union) == [(1, EndOfPartition())]
    assert union.is_finished and union.is_available


STEPS = st.lists(st.tuples(st.sampled_from(["give", "urgent", "poll", "wait"]), st.integers(0, 3)))


@given(STEPS, st.booleans())
def test_no_wake_up_is_lost_and_every_channel_keeps_its_order(
    steps: list[tuple[str, int]], is_union: bool
) -> None:
    one, other = Gate(2), Gate(2)
    gate = UnionInputGate([one.gate, other.gate]) if is_union else Gate(4).gate
    made = {0: one.scripted[0], 1: one.scripted[1], 2: other.scripted[0], 3: other.scripted[1]}
    if not is_union:
        whole = Gate(4)
        gate, made = whole.gate, whole.scripted
    given_to: dict[int, list[object]] = {k: [] for k in range(4)}
    seen: dict[int, list[object]] = {k: [] for k in range(4)}
    woken: list[bool] = []
    number = waits = 0
    for step, index in steps:
        if step == "give":
            number += 1
            made[index].give(rows(number))
            given_to[index].append(number)
        elif step == "urgent":
            made[index].give_priority(BARRIER)
        elif step == "wait":
            waits += 1
            gate.on_available(partial(woken.append, True))
        else:
            element = gate.poll()
            if element is None:
                assert not any(channel.queued_count for channel in made.values())
            elif isinstance(element, BatchElement):
                assert not any(channel.priority for channel in made.values())
                seen[element.channel_index].append(element.batch.rows()[0])
            else:
                assert isinstance(element, EventElement)
        if any(channel.queued_count for channel in made.values()):
            assert gate.is_available
            assert len(woken) == waits
    for index, element in polled(gate):
        if element is not BARRIER:
            seen[index].append(element)
    assert seen == given_to


def test_what_was_restored_is_read_before_what_comes_on_any_channel() -> None:
    made = Gate(2)
    made.gate.restore(1, [rows(1), rows(2)])
    made.gate.restore(0, [])
    assert made.gate.is_available and made.gate.queue_length == 2
    made.gate.request_partitions()
    assert made.scripted[1].calls == ["request"]
    made.scripted[1].give(rows(3))
    made.scripted[1].give_priority(BARRIER)
    made.scripted[0].give(rows(9))
    assert not made.gate.has_priority_event
    assert polled(made.gate) == [(1, 1), (1, 2), (1, BARRIER), (0, 9), (1, 3)]


def test_what_was_restored_and_is_not_read_yet_is_captured_again() -> None:
    made = Gate(2)
    made.gate.restore(1, [rows(1), rows(2)])
    made.gate.poll()
    made.gate.start_capture(7)
    assert [(index, batch.row_count) for index, batch in made.gate.stop_capture(7)] == [(1, 1)]
    assert made.scripted[1].calls == ["start 7", "stop 7"]


def test_a_channel_that_is_placed_while_others_capture_captures_too() -> None:
    made = Gate(2, unknown=(1,))
    made.gate.start_capture(7)
    made.gate.update_channel(ShuffleDescriptor(partition_id(1), HERE))
    assert made.scripted[1].calls == ["start 7"]


def test_a_capture_ends_for_the_checkpoint_that_it_is_of() -> None:
    made = Gate(1)
    made.gate.restore(0, [rows(1)])
    made.gate.start_capture(7)
    made.gate.start_capture(8)
    assert made.gate.stop_capture(7) == []
    assert len(made.gate.stop_capture(8)) == 1
    assert made.gate.stop_capture(8) == []


def test_a_channel_becomes_known_before_it_is_requested() -> None:
    made = Gate(2, unknown=(1,))
    assert made.gate.update_channel(ShuffleDescriptor(partition_id(1), HERE))
    assert made.scripted[1].calls == []
    made.gate.request_partitions()
    assert made.scripted[1].calls == ["request"]


def test_a_channel_that_becomes_known_late_is_requested_then_and_told_what_was_asked() -> None:
    made = Gate(2, unknown=(1,))
    made.gate.request_partitions()
    unknown = made.gate.channels[1]
    unknown.request_in_flight_bytes(4096)
    unknown.send_task_event(b"again")
    assert polled(made.gate) == []
    assert made.gate.update_channel(ShuffleDescriptor(partition_id(1), HERE))
    assert made.scripted[1].calls == ["request", "bytes 4096", "event again"]
    made.scripted[1].give(rows(5))
    assert polled(made.gate) == [(1, 5)]
    assert not made.gate.update_channel(ShuffleDescriptor(partition_id(1), HERE))


def test_a_channel_that_becomes_known_after_the_gate_was_closed_is_not_placed() -> None:
    made = Gate(1, unknown=(0,))
    made.gate.request_partitions()
    made.gate.close()
    assert not made.gate.update_channel(ShuffleDescriptor(partition_id(0), HERE))
    assert made.scripted == {}


def test_an_update_while_the_gate_is_closed_leaves_no_open_channel() -> None:
    made = Gate(1, unknown=(0,))
    made.gate.request_partitions()
    unknown = made.gate.channels[0]

    class ClosesInBetween(UnknownInputChannel):
        """The update comes when the gate that closes has taken this channel in hand."""

        def close(self) -> None:
            made.gate.update_channel(ShuffleDescriptor(partition_id(0), HERE))

    unknown.__class__ = ClosesInBetween
    made.gate.close()
    assert all("close" in channel.calls for channel in made.scripted.values())


def test_an_unknown_channel_behind_restored_rows_is_placed() -> None:
    made = Gate(1, unknown=(0,))
    made.gate.restore(0, [rows(1), rows(2)])
    made.gate.request_partitions()
    assert made.gate.update_channel(ShuffleDescriptor(partition_id(0), HERE))
    assert made.scripted[0].calls == ["request"]
    made.scripted[0].give(rows(3))
    assert polled(made.gate) == [(0, 1), (0, 2), (0, 3)]
    assert made.gate.channels[0].is_local
    assert not made.gate.update_channel(ShuffleDescriptor(partition_id(0), HERE))


def test_a_partition_that_no_unknown_channel_waits_for_changes_nothing() -> None:
    made = Gate(1, unknown=(0,))
    assert not made.gate.update_channel(ShuffleDescriptor(partition_id(7), HERE))
    assert made.scripted == {}
