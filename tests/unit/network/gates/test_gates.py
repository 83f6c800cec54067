"""Gates: whose turn it is and who is told."""

from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.core.elements import CancelTaskException, EndOfPartition
from headrace.network.gates.union_gate import UnionInputGate
from tests.unit.network.scripted_gate import BARRIER, Gate, polled, rows, told


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


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["give", "give", "urgent", "poll", "poll", "wait", "wait", "end", "close"]),
        st.integers(0, 3),
    )
)


@settings(max_examples=200)
@given(STEPS, st.booleans())
def test_no_wake_up_is_lost_and_every_channel_keeps_its_order(
    steps: list[tuple[str, int]], is_union: bool
) -> None:
    parts = [Gate(2), Gate(2)] if is_union else [Gate(4)]
    scripted = [channel for part in parts for channel in part.scripted.values()]
    gate = UnionInputGate([part.gate for part in parts]) if is_union else parts[0].gate
    given_to: list[list[object]] = [[] for _ in scripted]
    seen: list[list[object]] = [[] for _ in scripted]
    ended: set[int] = set()
    woken: list[bool] = []
    waits = 0
    for number, (step, index) in enumerate(steps):
        if step == "give" and index not in ended:
            scripted[index].give(rows(number))
            given_to[index].append(number)
        elif step == "urgent" and index not in ended:
            scripted[index].give_priority(BARRIER)
        elif step == "end" and index not in ended:
            ended.add(index)
            scripted[index].give(EndOfPartition())
            given_to[index].append(EndOfPartition())
        elif step == "wait":
            waits += 1
            gate.on_available(partial(woken.append, True))
        elif step == "close":
            # By whoever cancels the task, which may be waiting.
            for part in parts:
                part.gate.close()
            assert gate.is_available and len(woken) == waits
            with pytest.raises(CancelTaskException):
                gate.poll()
            return
        elif step == "poll":
            has_priority = any(channel.priority for channel in scripted)
            element = gate.poll()
            if element is None:
                assert not any(channel.queued_count for channel in scripted)
            else:
                channel, what = told(element)
                assert (what is BARRIER) == has_priority
                seen[channel] += [] if what is BARRIER else [what]
        has_rows = any(channel.queued_count for channel in scripted)
        assert gate.is_finished == all(EndOfPartition() in each for each in seen)
        if has_rows or gate.is_finished:
            assert gate.is_available
            assert len(woken) == waits
    for index, element in polled(gate):
        if element is not BARRIER:
            seen[index].append(element)
    assert seen == given_to
    assert gate.is_finished == (len(ended) == 4)
