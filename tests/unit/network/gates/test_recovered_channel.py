"""Recovered channels: what was caught on its way comes first, is caught again, and makes way for what is new."""

from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.network.gates.in_flight_input import CapturedBatch
from headrace.network.gates.recovered_channel import RecoveredInputChannel
from headrace.network.gates.union_gate import UnionInputGate
from tests.unit.network.scripted_gate import BARRIER, Gate, polled, rows, rows_in, told


def test_what_was_restored_on_all_channels_is_read_before_any_partition_is_requested() -> None:
    made = Gate(3)
    made.gate.restore(1, [rows(1), rows(2)])
    made.gate.restore(0, [rows(4)])
    made.gate.restore(1, [rows(3)])
    made.gate.restore(2, [])
    assert made.gate.is_available and made.gate.queue_length == 4
    made.gate.request_partitions()
    for expected in [(1, 1), (0, 4), (1, 2), (1, 3)]:
        assert all(channel.calls == [] for channel in made.scripted.values())
        element = made.gate.poll()
        assert element is not None and told(element) == expected
    assert polled(made.gate) == []
    assert all(channel.calls == ["request"] for channel in made.scripted.values())
    made.scripted[1].give(rows(5))
    made.scripted[1].give_priority(BARRIER)
    assert polled(made.gate) == [(1, BARRIER), (1, 5)]


def test_a_recovered_channel_makes_way_for_its_successor_after_its_end_of_state() -> None:
    made = Gate(2)
    made.gate.restore(1, [rows(1)])
    recovered = made.gate.channels[1]
    assert isinstance(recovered, RecoveredInputChannel) and recovered.is_local
    assert recovered.successor is made.scripted[1]
    made.gate.request_partitions()
    made.gate.poll()
    assert made.gate.channels[1] is recovered and made.gate.is_available
    assert made.gate.poll() is None
    assert list(made.gate.channels) == [made.scripted[0], made.scripted[1]]
    assert not made.gate.is_available


def test_what_was_restored_and_is_not_read_yet_is_captured_again() -> None:
    made = Gate(2)
    made.gate.restore(1, [rows(1), rows(2)])
    made.gate.poll()
    made.gate.start_capture(7)
    assert [(index, batch.row_count) for index, batch in made.gate.stop_capture(7)] == [(1, 1)]


def test_what_is_read_while_a_capture_goes_on_stands_before_what_is_new_in_it() -> None:
    made = Gate(1)
    made.gate.restore(0, [rows(1), rows(2)])
    made.gate.request_partitions()
    made.gate.start_capture(7)
    assert polled(made.gate) == [(0, 1), (0, 2)]
    assert made.scripted[0].calls == ["start 7", "request"]
    made.scripted[0].captured.append(CapturedBatch(rows(3).arrow, ()))
    captured = made.gate.stop_capture(7)
    assert [(index, rows_in(batch)) for index, batch in captured] == [(0, [1]), (0, [2]), (0, [3])]
    assert made.gate.stop_capture(7) == []


def test_closing_a_gate_that_recovers_closes_what_would_have_been_read_next() -> None:
    made = Gate(1)
    made.gate.restore(0, [rows(1)])
    made.gate.close()
    assert made.scripted[0].calls == ["close"]


def test_a_capture_ends_for_the_checkpoint_that_it_is_of() -> None:
    made = Gate(1)
    made.gate.restore(0, [rows(1)])
    made.gate.start_capture(7)
    made.gate.start_capture(8)
    assert made.gate.stop_capture(7) == []
    assert len(made.gate.stop_capture(8)) == 1
    assert made.gate.stop_capture(8) == []


@settings(max_examples=50)
@given(
    st.lists(st.integers(0, 3), min_size=4, max_size=4),
    st.lists(
        st.one_of(st.just("poll"), st.just("capture"), st.tuples(st.just("give"), st.integers(0, 3))),
        max_size=40,
    ),
)  # fmt: skip
def test_two_gates_recover_each_by_itself_and_every_row_comes_once_in_its_channels_order(
    restored_counts: list[int], steps: list[str | tuple[str, int]]
) -> None:
    made = [Gate(2), Gate(2)]
    union = UnionInputGate([each.gate for each in made])
    expected: list[list[int]] = [[], [], [], []]
    found: list[list[int]] = [[], [], [], []]
    for channel, count in enumerate(restored_counts):
        expected[channel] = [channel * 100 + number for number in range(count)]
        batches = [rows(value) for value in expected[channel]]
        made[channel // 2].gate.restore(channel % 2, batches)
    for each in made:
        each.gate.request_partitions()

    def poll() -> bool:
        element = union.poll()
        if element is None:
            return False
        channel, value = told(element)
        assert isinstance(value, int)
        found[channel].append(value)
        for k, each in enumerate(made):
            # Nothing new before all that was restored in the same gate, whatever the other one has.
            if any("request" in scripted.calls for scripted in each.scripted.values()):
                own = (2 * k, 2 * k + 1)
                assert all(len(found[index]) >= restored_counts[index] for index in own)
        return True

    for number, step in enumerate(steps):
        match step:
            case "poll":
                poll()
            case "capture":
                # What a checkpoint keeps at this moment: of either gate what was restored and not read.
                kept: list[list[int]] = [[], [], [], []]
                for k, each in enumerate(made):
                    each.gate.start_capture(number)
                    for index, batch in each.gate.stop_capture(number):
                        kept[2 * k + index] += rows_in(batch)
                for channel, count in enumerate(restored_counts):
                    assert kept[channel] == expected[channel][len(found[channel]) : count]
            case (_, channel):
                scripted = made[channel // 2].scripted[channel % 2]
                if "request" in scripted.calls:
                    expected[channel].append(channel * 100 + 10 + number)
                    scripted.give(rows(expected[channel][-1]))
            case _:
                raise AssertionError(step)
    while poll():
        pass
    assert found == expected
