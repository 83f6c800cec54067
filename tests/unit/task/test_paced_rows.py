"""Pacing: what takes long is worked off in parts, in order, and what is fast as a whole."""

from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.clock import ManualClock
from headrace.core.elements import LatencyMarker
from headrace.core.ids import OperatorId
from headrace.core.record_batch import BatchType, RecordBatch
from headrace.core.types.type_info import Types
from headrace.operators.runtime.operator import TURN_MS
from headrace.task.paced_rows import Pace, PacedRows

NUMBERS = BatchType(Types.LONG())


class World:
    """Rows whose cost the test says, and all that was handed on, in its order."""

    def __init__(self, ms_per_row: float = 0.0) -> None:
        self.clock = ManualClock()
        self.ms_per_row = ms_per_row
        self.seen: list[Any] = []
        self.parts: list[int] = []
        self.rows = PacedRows(
            self.clock,
            self._batch,
            lambda timestamp_ms: self.seen.append(("watermark", timestamp_ms)),
            lambda is_idle: self.seen.append(("idle", is_idle)),
            lambda marker: self.seen.append(("latency", marker.marked_time_ms)),
        )

    def _batch(self, batch: RecordBatch) -> None:
        self.parts.append(batch.num_rows)
        self.seen += batch.rows()
        self.clock.advance_ms(self.ms_per_row * batch.num_rows)

    def work_off(self) -> None:
        while self.rows.is_amid_batch:
            self.rows.go_on()


def numbers(start: int, count: int) -> RecordBatch:
    column = pa.array(np.arange(start, start + count))
    return RecordBatch.of_columns(NUMBERS, pa.RecordBatch.from_arrays([column], names=["f0"]))


def test_nobody_waits_for_more_than_one_record_of_unknown_cost() -> None:
    world = World(ms_per_row=250)
    world.rows.batch(numbers(0, 4096))
    assert world.seen == [0] and world.rows.is_amid_batch
    world.rows.go_on()
    assert world.seen == [0, 1]


def test_what_is_fast_is_soon_worked_off_whole() -> None:
    world = World(ms_per_row=0.001)
    for start in range(0, 5 * 4096, 4096):
        world.rows.batch(numbers(start, 4096))
        world.work_off()
    assert world.parts[-1] == 4096 and len(world.parts) < 12


def test_parts_take_about_their_time() -> None:
    world = World(ms_per_row=1.0)
    world.rows.batch(numbers(0, 4096))
    world.work_off()
    assert set(world.parts[3:-1]) == {TURN_MS}


def test_a_record_that_becomes_slow_is_believed_at_once() -> None:
    pace = Pace()
    for _ in range(6):
        pace.took(pace.rows_now(4096), 1)
    assert pace.rows_now(4096) == 4096
    pace.took(4096, 4096 * 100_000_000)
    assert pace.rows_now(4096) == 1


steps = st.lists(
    st.one_of(
        st.integers(1, 40).map(lambda count: ("rows", count)),
        st.integers(0, 1000).map(lambda time: ("watermark", time)),
        st.booleans().map(lambda is_idle: ("idle", is_idle)),
        st.integers(0, 1000).map(lambda time: ("latency", time)),
        st.just(("go on", 0)),
    ),
    max_size=30,
)


@given(steps, st.sampled_from([0.0, 0.5, 30.0]))
def test_everything_comes_once_and_in_its_order(steps: list[Any], ms_per_row: float) -> None:
    world, expected, start = World(ms_per_row), list[Any](), 0
    for what, value in steps:
        if what == "rows":
            world.rows.batch(numbers(start, value))
            expected += range(start, start + value)
            start += value
        elif what == "watermark":
            world.rows.watermark(value)
            expected.append((what, value))
        elif what == "idle":
            world.rows.status(value)
            expected.append((what, value))
        elif what == "latency":
            world.rows.latency_marker(LatencyMarker(value, OperatorId(bytes(16)), 0))
            expected.append((what, value))
        elif world.rows.is_amid_batch:
            world.rows.go_on()
    world.work_off()
    assert world.seen == expected
