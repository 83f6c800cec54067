"""Programs with watermarks of their own and with aligned sources, on a whole cluster."""

from collections import Counter
from pathlib import Path
from typing import Any

from headrace import Duration, StreamExecutionEnvironment, Time, Types, WatermarkStrategy
from headrace.common import Configuration
from headrace.common.watermark_strategy import (
    TimestampAssigner,
    WatermarkGenerator,
    WatermarkOutput,
)
from headrace.connectors.datagen.source import DataGeneratorSource
from headrace.datastream import ProcessFunction
from headrace.datastream.connectors.number_seq import NumberSequenceSource
from headrace.datastream.window import TumblingEventTimeWindows
from headrace.functions.sink import DiscardingSink
from tests.integration.programs.job_details import await_begun
from tests.integration.programs.recovery_program import has_read


class ByItself(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return value


def collected(stream: Any) -> list[Any]:
    with stream.execute_and_collect() as records:
        return list(records)


class Tens(WatermarkGenerator):
    """Behind each multiple of ten all up to it are there."""

    def on_event(self, event: Any, event_timestamp: int, output: WatermarkOutput) -> None:
        if event_timestamp % 10 == 0:
            output.emit_watermark(event_timestamp)

    def on_periodic_emit(self, output: WatermarkOutput) -> None:
        pass


class WithWatermark(ProcessFunction):
    def process_element(self, value: int, ctx: ProcessFunction.Context) -> Any:
        yield value, ctx.timer_service().current_watermark()


def test_a_generator_of_ones_own_decides_about_each_record(env: StreamExecutionEnvironment) -> None:
    env.set_parallelism(1)
    strategy = WatermarkStrategy.for_generator(Tens).with_timestamp_assigner(ByItself())
    numbers = env.from_collection(range(10, 35), Types.LONG())
    seen = collected(numbers.assign_timestamps_and_watermarks(strategy).process(WithWatermark()))
    assert seen[1:] == [(number, (number - 1) // 10 * 10) for number in range(11, 35)]


def test_aligned_sources_lose_nothing_and_end(env: StreamExecutionEnvironment) -> None:
    env.set_parallelism(2)
    env.get_config().set_auto_watermark_interval(1)
    aligned = (
        WatermarkStrategy.for_monotonous_timestamps()
        .with_timestamp_assigner(ByItself())
        .with_watermark_alignment("numbers", Duration.of_millis(5), Duration.of_millis(1))
    )
    near = env.from_source(NumberSequenceSource(1, 2000), aligned, "near")
    far = env.from_source(NumberSequenceSource(10_001, 12_000), aligned, "far")
    counts = (
        near.union(far)
        .key_by(lambda number: number % 3, Types.LONG())
        .window(TumblingEventTimeWindows.of(Time.seconds(1)))
        .reduce(lambda a, b: max(a, b))
    )
    per_window = Counter(number // 1000 for number in collected(counts))
    assert per_window == Counter({0: 3, 1: 3, 2: 1, 10: 3, 11: 3, 12: 1})


WINDOW_COUNTS: list[int] = []


def note(count: int) -> int:
    WINDOW_COUNTS.append(count)
    return count


def start_counting(
    env: StreamExecutionEnvironment, parallelism: int, rows_per_second: float | None
) -> Any:
    """Count 30,000 generated numbers, whose times are themselves, in windows of 2 ms into WINDOW_COUNTS."""
    env.set_parallelism(parallelism)
    source = DataGeneratorSource(lambda index: index, 30_000, Types.LONG(), rows_per_second)
    times = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(ByItself())
    (
        env.from_source(source, times, "numbers")
        .uid("numbers")
        .map(lambda _: 1, output_type=Types.LONG())
        .key_by(lambda _: 0, Types.LONG())
        .window(TumblingEventTimeWindows.of(Time.milliseconds(2)))
        .reduce(lambda a, b: a + b)
        .uid("windows")
        .map(note, output_type=Types.LONG())
        .uid("counts")
        .sink_to(DiscardingSink())
        .uid("sink")
    )
    return env.execute_async("counting")


def test_generated_rows_are_all_counted_when_one_reader_goes_on_for_two(
    env: StreamExecutionEnvironment, tmp_path: Path
) -> None:
    WINDOW_COUNTS.clear()
    configuration = Configuration()
    configuration.set_string("pipeline.auto-watermark-interval", "1 ms")
    configuration.set_string("execution.checkpointing.interval", "1 h")
    env.configure(configuration)
    client = start_counting(env, 2, 10_000)
    await_begun(client, has_read(2_000))
    path = client.stop_with_savepoint(False, str(tmp_path)).result(60)
    assert 0 < sum(WINDOW_COUNTS) < 30_000
    configuration.set_string("execution.state-recovery.path", path)
    env.configure(configuration)
    start_counting(env, 1, None).get_job_execution_result().result(60)
    assert sum(WINDOW_COUNTS) == 30_000
