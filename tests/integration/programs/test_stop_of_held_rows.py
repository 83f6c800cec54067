"""A job is stopped without a drain while operators hold rows back: they come before the end of the data, not behind."""

import threading
from pathlib import Path

import pytest

from headrace import Duration, Row, StreamExecutionEnvironment, Types, WatermarkStrategy, agg
from headrace.common import Configuration, Time
from headrace.datastream.window import TumblingEventTimeWindows
from headrace.functions.sink import DiscardingSink
from headrace.functions.watermarks import ColumnTimestampAssigner
from tests.integration.programs.gated import GATES, Gate, GatedSource
from tests.integration.programs.job_details import await_details, every_task_runs

pytestmark = pytest.mark.integration

COUNT, WAIT_S = 500, 60
ALL_SEEN = threading.Event()


def _row_of(value: int) -> Row:
    if value == COUNT - 1:
        ALL_SEEN.set()
    return Row(k=value, n=value, t=value)


def test_a_stop_without_drain_ends_where_rows_are_counted_in_two_halves(
    env: StreamExecutionEnvironment, tmp_path: Path
) -> None:
    name = "held rows"
    GATES[name] = Gate(COUNT)
    ALL_SEEN.clear()
    configuration = Configuration()
    configuration.set_string("pipeline.auto-watermark-interval", "1 h")
    configuration.set_string("execution.checkpointing.dir", str(tmp_path))
    env.configure(configuration)
    env.set_parallelism(1)
    row = Types.ROW_NAMED(["k", "n", "t"], [Types.LONG(), Types.LONG(), Types.LONG()])
    times = WatermarkStrategy.for_bounded_out_of_orderness(
        Duration.of_hours(5)
    ).with_timestamp_assigner(ColumnTimestampAssigner("t"))
    (
        env.from_source(
            GatedSource(name, None), WatermarkStrategy.no_watermarks(), "numbers", Types.LONG()
        )
        .map(_row_of, output_type=row)
        .assign_timestamps_and_watermarks(times)
        .key_by("k")
        .window(TumblingEventTimeWindows.of(Time.hours(1)))
        .aggregate(agg.count().alias("c"))
        .map(lambda counted: counted["c"], output_type=Types.LONG())
        .sink_to(DiscardingSink())
    )
    client = env.execute_async(name)
    assert ALL_SEEN.wait(WAIT_S)
    await_details(client, every_task_runs)
    savepoint = client.stop_with_savepoint(False, str(tmp_path)).result(WAIT_S)
    assert Path(savepoint.removeprefix("file:"), "_metadata").exists()
