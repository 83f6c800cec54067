"""The trace of an exchange: it is the reference's worked example where the rules are the same, and lawful always."""

import json
import threading

from hypothesis import given
from hypothesis import strategies as st

from headrace.network.trace.exchange import TraceSettings, trace_exchange
from headrace.network.trace.steps import Reading, to_json


def row(reading: Reading) -> tuple[int | str, ...]:
    held = "E" * reading.held_exclusive + "F" * reading.held_floating
    return (
        reading.sender_credit,
        reading.queue,
        reading.data_in_flight,
        reading.idle_exclusive,
        reading.idle_floating,
        reading.required,
        reading.pool,
        held,
    )


def test_the_worked_example_comes_out_as_in_flink() -> None:
    # Two exclusive and eight floating segments, five batches, a task that takes nothing before all are there. Two
    # rules of ours differ and change nothing here: a lone channel would begin with all ten segments (hence the second,
    # idle channel), and credit is announced in the step in which it comes free, so that "unannounced" is 0 in between.
    steps = trace_exchange(TraceSettings(row_count=5, is_consumer_slow=True))
    readings = {step.text: step.reading for step in steps}
    found = {text: row(reading) for text, reading in readings.items() if reading is not None}
    expected: list[tuple[str, tuple[int | str, ...]]] = [
        # what happened                                        credit queue way idleE idleF req pool held
        ("A receives PartitionRequest of channel 0, credit 2", (0, 3, 2, 2, 0, 0, 8, "")),
        ("B receives Data #0 of channel 0, backlog 4", (0, 3, 1, 1, 5, 6, 3, "E")),
        ("B receives Data #1 of channel 0, backlog 3", (0, 3, 0, 1, 4, 5, 3, "EF")),
        ("A receives AddCredit 5 for channel 0", (2, 0, 3, 1, 4, 5, 3, "EF")),
        ("B receives Data #4 of channel 0, backlog 0", (2, 0, 0, 1, 1, 2, 3, "EFFFF")),
        ("B's task takes the batch with row 0", (2, 0, 0, 2, 0, 2, 4, "FFFF")),
        ("B's task takes the batch with row 4", (2, 0, 0, 2, 0, 2, 8, "")),
    ]
    for text, figures in expected:
        assert found[text] == figures, text
    sent = [frame.text for step in steps for frame in step.sent if frame.name in ("Data", "AddCredit")]  # fmt: skip
    assert sent == [
        "Data #0 of channel 0, backlog 4",
        "Data #1 of channel 0, backlog 3",
        "AddCredit 5 for channel 0",
        "Data #2 of channel 0, backlog 2",
        "Data #3 of channel 0, backlog 1",
        "Data #4 of channel 0, backlog 0",
    ]


def test_a_lone_channel_begins_with_all_segments_of_its_gate() -> None:
    steps = trace_exchange(TraceSettings(channel_count=1))
    requests = [frame for step in steps for frame in step.sent if frame.name == "PartitionRequest"]
    assert [frame.fields["initial_credit"] for frame in requests] == [10]


def test_a_slow_consumer_stops_its_producer() -> None:
    steps = trace_exchange(TraceSettings(row_count=40, is_consumer_slow=True))
    assert any("is back-pressured" in step.text for step in steps)
    held = [step.reading.held_exclusive + step.reading.held_floating for step in steps if step.reading]  # fmt: skip
    assert max(held) == 10


@given(
    st.builds(
        TraceSettings,
        st.integers(1, 40),
        st.integers(1, 4),
        st.integers(0, 10),
        st.integers(1, 4),
        st.booleans(),
        st.none() | st.integers(0, 1 << 32),
    )
)
def test_every_row_crosses_once_and_the_law_holds_at_every_step(wanted: TraceSettings) -> None:
    steps = trace_exchange(wanted)
    assert [step.number for step in steps if not step.is_lawful] == []
    taken = [step.text for step in steps if step.text.startswith("B's task takes the batch")]
    assert taken == [f"B's task takes the batch with row {number}" for number in range(wanted.row_count)]  # fmt: skip
    for reading in (step.reading for step in steps if step.reading is not None):
        assert reading.is_balanced and min(reading.sender_credit, reading.pool) >= 0
    last = [step.text for step in steps if "EndOfPartition" in step.text and "takes" in step.text]
    assert len(last) == wanted.channel_count


def test_the_same_settings_give_the_same_trace_and_another_seed_another() -> None:
    def texts(seed: int) -> list[str]:
        return [step.text for step in trace_exchange(TraceSettings(seed=seed))]

    assert texts(1) == texts(1)
    assert len({tuple(texts(seed)) for seed in range(5)}) > 1


def test_a_trace_leaves_no_thread() -> None:
    before = threading.active_count()
    trace_exchange(TraceSettings())
    assert threading.active_count() == before


def test_a_step_is_a_line_of_json_with_every_field_of_its_frames() -> None:
    for step in trace_exchange(TraceSettings(row_count=1)):
        found = json.loads(to_json(step))
        assert found["number"] == step.number and found["text"] == step.text
        for frame in found["sent"]:
            assert {frame["source"], frame["target"]} == {"A", "B"}
            if frame["name"] == "Data":
                assert frame["fields"]["sequence"] == 0 and frame["fields"]["body_bytes"] > 0
