"""A source that ends long before another one: checkpoints go on without it, behind a restart too; no row is lost."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace import StreamExecutionEnvironment, Types, WatermarkStrategy
from headrace.api.client.job_client import JobClient
from headrace.common import Configuration, Encoder
from headrace.core.lifecycle import ExecutionState
from headrace.datastream import KeyedProcessFunction
from headrace.datastream.connectors.file_system import FileSink
from headrace.gateways.job_master import JobDetails
from tests.integration.programs.committed_lines import committed_lines
from tests.integration.programs.gated import GATES, Gate, GatedSource
from tests.integration.programs.job_details import await_details

pytestmark = pytest.mark.integration

SHORT_COUNT, LONG_COUNT, LONG_FROM, POISON, WAIT_S = 100, 400, 1_000, 1_150, 60
OPTIONS = {
    "execution.checkpointing.interval": "50 ms",
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": "3",
    "restart-strategy.fixed-delay.delay": "10 ms",
}


class FailsOnce(KeyedProcessFunction):
    """Passes on what comes; fails at POISON, unless the marker says that it has failed before."""

    def __init__(self, marker: str) -> None:
        self._marker = marker

    def process_element(self, value: int, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        if value == POISON and not Path(self._marker).exists():
            Path(self._marker).touch()
            raise ValueError("it was to fail once")
        yield str(value)


def start(env: StreamExecutionEnvironment, folder: Path, name: str) -> JobClient:
    configuration = Configuration()
    for key, value in OPTIONS.items():
        configuration.set_string(key, value)
    env.configure(configuration)
    env.set_parallelism(1)
    no_watermarks = WatermarkStrategy.no_watermarks()
    short = GatedSource(f"{name} short", SHORT_COUNT)
    long = GatedSource(f"{name} long", LONG_COUNT)
    (
        env.from_source(short, no_watermarks, "short", Types.INT())
        .union(
            env.from_source(long, no_watermarks, "long", Types.INT()).map(
                lambda number: number + LONG_FROM, output_type=Types.INT()
            )
        )
        .key_by(lambda number: number % 7, key_type=Types.INT())
        .process(FailsOnce(str(folder / "failed")), output_type=Types.STRING())
        .sink_to(
            FileSink.for_row_format(str(folder / "target"), Encoder.simple_string_encoder()).build()
        )
    )
    return env.execute_async(name)


def await_checkpoints_without_the_short_source(client: JobClient, restored: int) -> None:
    """Wait until it has finished, and two more checkpoints are complete."""

    def has_finished(details: JobDetails) -> bool:
        states = {subtask.state for vertex in details.vertices for subtask in vertex.subtasks}
        is_back = details.checkpoints.counts.restored == restored
        return is_back and states == {ExecutionState.FINISHED, ExecutionState.RUNNING}

    completed = await_details(client, has_finished).checkpoints.counts.completed
    await_details(client, lambda details: details.checkpoints.counts.completed >= completed + 2)


def test_checkpoints_go_on_without_a_source_that_has_ended_also_behind_a_restart(
    env: StreamExecutionEnvironment, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    name = request.node.name
    short, long = GATES[f"{name} short"], GATES[f"{name} long"] = Gate(0), Gate(0)
    client = start(env, tmp_path, name)
    short.open_to(SHORT_COUNT)
    long.open_to(50)
    await_checkpoints_without_the_short_source(client, restored=0)
    long.open_to(200)
    await_checkpoints_without_the_short_source(client, restored=1)
    long.open_to(LONG_COUNT)
    client.get_job_execution_result().result(WAIT_S)
    lines = committed_lines(tmp_path / "target").elements()
    assert Counter(map(int, lines)) == Counter(
        [*range(SHORT_COUNT), *range(LONG_FROM, LONG_FROM + LONG_COUNT)]
    )
