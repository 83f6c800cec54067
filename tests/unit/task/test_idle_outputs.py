"""What an output that is idle passes on: no watermark but the last, before which it is no longer idle."""

from collections.abc import Callable

import pytest

from headrace.core.elements import MAX_WATERMARK, LatencyMarker
from headrace.core.record_batch import RecordBatch
from headrace.task.outputs import OperatorOutput


class _Target:
    makes_columns = False

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
def test_an_idle_output(
    steps: list[Callable[[OperatorOutput], None]], wanted: list[tuple[str, int | bool]]
) -> None:
    target, output = _Target(), OperatorOutput()
    output.add_target(target, None)
    output.emit_status(True)
    for step in steps:
        step(output)
    assert target.received == wanted
