"""Aggregates on columns hold the results of some keys at a time in BATCH mode, as if they held all of them."""

from collections.abc import Callable
from typing import Any, Final
from unittest.mock import patch

import pytest

from headrace import DataStream, StreamExecutionEnvironment, WatermarkStrategy, agg
from headrace.api.streams.keyed_stream import KeyedStream
from headrace.common import Duration, Time, Types
from headrace.common.watermark_strategy import TimestampAssigner
from headrace.datastream.window import (
    EventTimeSessionWindows,
    GlobalWindows,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
)
from headrace.operators.columns import window_aggregate
from headrace.operators.columns.session_aggregate import SessionAggregateOperator
from headrace.operators.columns.sliced_aggregate import SlicedAggregateOperator
from headrace.operators.columns.window_aggregate import WindowAggregateOperator
from headrace.operators.columns.window_rows import WindowRowsOperator
from headrace.state import operator_state_handler
from tests.unit.api.recording import recording
from tests.unit.task.batch.local_stages import LocalStages

ROW: Final = Types.ROW_NAMED(["key", "time", "number"], [Types.LONG()] * 3)
KEYS: Final = 900
ROWS: Final = [(n * 7 % KEYS, n * 37 % 5_000, n) for n in range(6_000)]
ALL_KEYS: Final = 1 << 60
Keyed = KeyedStream
results: list[Any] = []


class Times(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return value.time


def keep(value: Any) -> Any:
    results.append(tuple(value))
    return value


def tumbling(stream: Keyed) -> DataStream:
    windows = stream.window(TumblingEventTimeWindows.of(Time.milliseconds(1_000)))
    return windows.aggregate(agg.sum("number"), agg.count().alias("n"))


def sliding(stream: Keyed) -> DataStream:
    size, slide = Time.milliseconds(1_000), Time.milliseconds(500)
    return stream.window(SlidingEventTimeWindows.of(size, slide)).aggregate(agg.max("number"))


def whole(stream: Keyed) -> DataStream:
    windows = stream.window(GlobalWindows.create_with_end_of_stream_trigger())
    return windows.aggregate(agg.min("number"), agg.count_distinct("time").alias("times"))


def sessions(stream: Keyed) -> DataStream:
    windows = stream.window(EventTimeSessionWindows.with_gap(Time.milliseconds(400)))
    return windows.aggregate(agg.sum("number"))


def with_lateness(stream: Keyed) -> DataStream:
    windows = stream.window(TumblingEventTimeWindows.of(Time.milliseconds(1_000)))
    return windows.allowed_lateness(100).aggregate(agg.sum("number"))


def largest(stream: Keyed) -> DataStream:
    windows = stream.window(TumblingEventTimeWindows.of(Time.milliseconds(1_000)))
    return windows.largest_rows(2, "number")


def run(build: Callable[[Keyed], DataStream]) -> list[Any]:
    results.clear()
    with recording(2) as executor:
        env = StreamExecutionEnvironment.get_execution_environment()
        env.set_parallelism(2)
        strategy: Any = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(0))
        rows = env.from_collection(ROWS, ROW).assign_timestamps_and_watermarks(
            strategy.with_timestamp_assigner(Times())
        )
        build(rows.key_by("key")).map(keep).print()
        env.execute_async()
        graph = executor.last
    LocalStages(graph, 64).run()
    return sorted(results)


def held_by(operator: Any) -> int:
    if isinstance(operator, WindowAggregateOperator):
        return operator._state.slots.live_slot_count  # pyright: ignore[reportPrivateUsage]
    if isinstance(operator, SessionAggregateOperator):
        tables = (operator._open_sessions, *operator._held)  # pyright: ignore[reportPrivateUsage]
    else:
        tables = operator._rows.tables
    return sum(table.num_rows for table in tables)


@pytest.mark.parametrize(
    ("build", "operator", "module", "bound"),
    [
        (tumbling, SlicedAggregateOperator, operator_state_handler, "row_buffer_bytes"),
        (sliding, SlicedAggregateOperator, operator_state_handler, "row_buffer_bytes"),
        (whole, SlicedAggregateOperator, operator_state_handler, "row_buffer_bytes"),
        (sessions, SessionAggregateOperator, operator_state_handler, "row_buffer_bytes"),
        (largest, WindowRowsOperator, operator_state_handler, "row_buffer_bytes"),
        (with_lateness, WindowAggregateOperator, window_aggregate, "_HELD_SLOTS"),
    ],
)
def test_keys_that_have_ended_are_held_up_to_a_bound_and_results_stay_the_same(
    build: Any, operator: Any, module: Any, bound: str
) -> None:
    held: list[int] = []
    end_keys = operator.end_keys

    def watched(self: Any, output: Any) -> None:
        end_keys(self, output)
        held.append(held_by(self))

    def bounded(size: int) -> Any:
        """Patch the bound, which is a number or a function of settings that returns one."""
        is_function = module is operator_state_handler
        return patch.object(module, bound, (lambda _settings: size) if is_function else size)

    with (
        patch("headrace.task.batch.stage_task._COLUMNS_MAX", 100),
        patch.object(operator, "end_keys", watched),
    ):
        with bounded(ALL_KEYS):
            expected = run(build)
        most_of_all, held[:] = max(held), []
        with bounded(1):
            assert run(build) == expected != []
    assert most_of_all > KEYS // 3, "all keys of a subtask are held without a bound"
    assert max(held) == 0, "what has ended is given"
