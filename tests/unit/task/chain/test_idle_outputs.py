"""Watermarks and idleness at an output: an idle one passes on no watermark but the last."""

from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.elements import MAX_WATERMARK, MIN_TIMESTAMP, LatencyMarker
from headrace.core.record_batch import RecordBatch
from headrace.task.chain.outputs import OperatorOutput


class _Target:
    makes_columns = False
    reads_rows = False

    def __init__(self) -> None:
        self.received: list[tuple[str, int | bool]] = []

    def receive(self, batch: RecordBatch) -> None:
        raise AssertionError("no rows are sent")

    def receive_watermark(self, timestamp_ms: int) -> None:
        self.received.append(("watermark", timestamp_ms))

    def receive_status(self, is_idle: bool) -> None:
        self.received.append(("idle", is_idle))

    def receive_latency_marker(self, marker: LatencyMarker) -> None:
        raise AssertionError("no latency marker is sent")


IDLE, ACTIVE = ("idle", True), ("idle", False)
END = ("watermark", MAX_WATERMARK)


@pytest.mark.parametrize(
    ("steps", "wanted"),
    [
        ([lambda out: out.emit_watermark(5)], [IDLE]),
        ([lambda out: out.emit_watermark(MAX_WATERMARK)], [IDLE, ACTIVE, END]),
        (
            [lambda out: out.emit_status(False), lambda out: out.emit_watermark(5)],
            [IDLE, ACTIVE, ("watermark", 5)],
        ),
    ],
    ids=["a watermark", "the last watermark", "a watermark once it is active"],
)
def test_an_idle_output_passes_on_no_watermark_but_the_last(
    steps: list[Callable[[OperatorOutput], None]], wanted: list[tuple[str, int | bool]]
) -> None:
    target, output = _Target(), OperatorOutput()
    output.add_target(target, None)
    output.emit_status(True)
    for step in steps:
        step(output)
    assert target.received == wanted


SAID = st.one_of(
    st.sampled_from([MIN_TIMESTAMP, -1, 0, 1, 2, 3, MAX_WATERMARK]), st.booleans(), st.booleans()
)


@given(st.lists(SAID, max_size=30))
def test_of_any_output_watermarks_grow_strictly_and_statuses_alternate(
    said: list[int | bool],
) -> None:
    """Whatever an operator says: a number is a watermark, a bool whether it is idle."""
    targets, output = [_Target(), _Target()], OperatorOutput()
    output.add_target(targets[0], None)
    output.add_target(targets[1], "side")
    for one in said:
        if isinstance(one, bool):
            output.emit_status(one)
        else:
            output.emit_watermark(one)
    received = targets[0].received
    assert targets[1].received == received, "side outputs are streams of their own"
    watermarks = [what for kind, what in received if kind == "watermark"]
    assert all(earlier < later for earlier, later in pairwise([MIN_TIMESTAMP, *watermarks]))
    statuses = [what for kind, what in received if kind == "idle"]
    assert all(is_idle == (index % 2 == 0) for index, is_idle in enumerate(statuses))
    is_idle = False
    for kind, what in received:
        is_idle = bool(what) if kind == "idle" else is_idle
        assert kind == "idle" or not is_idle
    if MAX_WATERMARK in said:
        assert watermarks[-1] == MAX_WATERMARK, "the end of event time is not swallowed"
