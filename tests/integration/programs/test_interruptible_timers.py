"""A watermark makes thousands of timers due: checkpoints are complete meanwhile, and a failure repeats none of them."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace import Duration, StreamExecutionEnvironment, Types, WatermarkStrategy
from headrace.common import Configuration, Encoder
from headrace.datastream import KeyedProcessFunction
from headrace.datastream.connectors.file_system import FileSink
from headrace.functions.watermarks import TimestampAssigner
from tests.integration.programs.committed_lines import committed_lines
from tests.integration.programs.gated import GATES, Gate, GatedSource
from tests.integration.programs.unaligned_program import TAPS, Tap

pytestmark = pytest.mark.integration

TIMERS, DUE_MS, WAIT_S = 3_000, 1_000_000, 60


class Remind(KeyedProcessFunction):
    """A timer per record, all at one time; they fire as fast as the tap lets them."""

    def __init__(self, tap: str, marker: str) -> None:
        self._tap = tap
        self._marker = Path(marker)

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> None:
        if value < TIMERS:
            ctx.timer_service().register_event_time_timer(DUE_MS)

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterator[Any]:
        TAPS[self._tap].take()
        if self._marker.exists():
            self._marker.unlink()
            raise ValueError("it was to fail once")
        yield str(ctx.get_current_key())


class Late(TimestampAssigner):
    """All records but the last are early; the last one moves event time behind all timers."""

    def extract_timestamp(self, value: int, record_timestamp: int) -> int:
        return value if value < TIMERS else 2 * DUE_MS


def test_checkpoints_are_complete_while_timers_fire_and_a_failure_repeats_none(
    env: StreamExecutionEnvironment, tmp_path: Path
) -> None:
    name, target, marker = "reminders", tmp_path / "target", tmp_path / "fail"
    tap = TAPS[name] = Tap()
    gate = GATES[name] = Gate(TIMERS + 1)
    configuration = Configuration()
    for key, value in {
        "execution.checkpointing.interval": "50 ms",
        "execution.checkpointing.unaligned.enabled": "true",
        "execution.checkpointing.unaligned.interruptible-timers.enabled": "true",
        "restart-strategy.type": "fixed-delay",
        "restart-strategy.fixed-delay.delay": "10 ms",
        "pipeline.auto-watermark-interval": "10 ms",
    }.items():
        configuration.set_string(key, value)
    env.configure(configuration)
    env.set_parallelism(1)
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(
        Duration.of_millis(0)
    ).with_timestamp_assigner(Late())
    (
        env.from_source(GatedSource(name, TIMERS + 2), strategy, "numbers", Types.INT())
        .key_by(lambda number: number, key_type=Types.INT())
        .process(Remind(name, str(marker)), output_type=Types.STRING())
        .sink_to(FileSink.for_row_format(str(target), Encoder.simple_string_encoder()).build())
    )
    client = env.execute_async(name)

    def completed() -> int:
        return client.get_job_details().result(WAIT_S).checkpoints.counts.completed

    while tap.taken < 2:
        tap.let_if_empty(1)
    before = completed()
    while completed() < before + 3:
        tap.let_if_empty(2)
        assert tap.taken < TIMERS - 100, "no checkpoint while timers fired"
    marker.touch()
    gate.open_to(TIMERS + 2)
    tap.let(100 * TIMERS)
    client.get_job_execution_result().result(WAIT_S)
    assert client.get_job_details().result(WAIT_S).checkpoints.counts.restored == 1
    assert committed_lines(target) == Counter(str(number) for number in range(TIMERS))
