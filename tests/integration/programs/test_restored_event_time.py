"""Event time goes on where it was: what is late in a run without a stop is late in one that was stopped and went on."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace import StreamExecutionEnvironment, Types, WatermarkStrategy
from headrace.api.client.job_client import JobClient
from headrace.common import Configuration, Encoder
from headrace.common.watermark_strategy import (
    TimestampAssigner,
    WatermarkGenerator,
    WatermarkOutput,
)
from headrace.datastream import KeyedProcessFunction
from headrace.datastream.connectors.file_system import FileSink
from tests.integration.programs.committed_lines import committed_lines
from tests.integration.programs.gated import GATES, Gate, GatedSource
from tests.integration.programs.job_details import await_details

pytestmark = pytest.mark.integration

STOPPED_AT, COUNT, WAIT_S = 20, 30, 60


class EveryTenthIsOld(TimestampAssigner):
    """Numbers are 10 ms apart, but every tenth is of the beginning; the first after the stop is one of them."""

    def extract_timestamp(self, value: int, record_timestamp: int) -> int:
        return value * 10 if value % 10 else 1


class AtOnce(WatermarkGenerator):
    """Behind each record nothing older is said to come."""

    def on_event(self, event: Any, event_timestamp: int, output: WatermarkOutput) -> None:
        output.emit_watermark(event_timestamp)

    def on_periodic_emit(self, output: WatermarkOutput) -> None:
        pass


class WhetherLate(KeyedProcessFunction):
    def process_element(self, value: int, ctx: KeyedProcessFunction.Context) -> Iterator[str]:
        timestamp = ctx.timestamp()
        assert timestamp is not None
        yield f"{value} {'late' if timestamp < ctx.timer_service().current_watermark() else 'in time'}"


class Program:
    """Tells of each number whether it was late, into files."""

    def __init__(self, env: StreamExecutionEnvironment, folder: Path, name: str) -> None:
        self.env, self.folder, self._name = env, folder, name
        self.gate = GATES[name] = Gate(0)
        env.set_parallelism(1)

    def start(self, count: int | None, **options: str) -> JobClient:
        configuration = Configuration()
        configuration.set_string("execution.checkpointing.interval", "1 h")
        for key, value in options.items():
            configuration.set_string(key, value)
        self.env.configure(configuration)
        strategy = WatermarkStrategy.for_generator(AtOnce).with_timestamp_assigner(
            EveryTenthIsOld()
        )
        target = str(self.folder / "target")
        (
            self.env.from_source(GatedSource(self._name, count), strategy, "numbers", Types.INT())
            .key_by(lambda number: 0, key_type=Types.INT())
            .process(WhetherLate(), output_type=Types.STRING())
            .uid("whether late")
            .sink_to(FileSink.for_row_format(target, Encoder.simple_string_encoder()).build())
            .uid("sink")
        )
        return self.env.execute_async(self._name)

    def late(self) -> list[int]:
        lines = list(committed_lines(self.folder / "target").elements())
        assert len(lines) == COUNT
        return sorted(int(line.split()[0]) for line in lines if line.endswith("late"))


@pytest.mark.parametrize(
    ("restores", "late"), [("true", [10, 20]), ("false", [10])], ids=["goes on", "begins anew"]
)
def test_what_was_late_stays_late_behind_a_stop_unless_event_time_is_to_begin_anew(
    env: StreamExecutionEnvironment,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    restores: str,
    late: list[int],
) -> None:
    program = Program(env, tmp_path, request.node.name)
    client = program.start(None)
    program.gate.open_to(STOPPED_AT)
    await_details(
        client,
        lambda details: details.vertices[0].metrics.get("numRecordsOut", 0) >= STOPPED_AT,
    )
    path = client.stop_with_savepoint(False, str(tmp_path / "savepoints")).result(WAIT_S)
    options = {
        "execution.state-recovery.path": path,
        "headrace.checkpoint.restore-watermarks": restores,
    }
    following = program.start(COUNT, **options)
    program.gate.open_to(COUNT)
    following.get_job_execution_result().result(WAIT_S)
    assert program.late() == late
