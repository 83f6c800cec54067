"""Calls in flight and broadcast states through failures, savepoints and other parallelisms, on a whole cluster."""

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import pytest

from headrace import StreamExecutionEnvironment, Time, Types, WatermarkStrategy
from headrace.api.client.job_client import JobClient
from headrace.common import Configuration, Encoder
from headrace.core.lifecycle import ExecutionState, JobStatus
from headrace.datastream import AsyncDataStream, AsyncFunction, BroadcastProcessFunction
from headrace.datastream.connectors.file_system import FileSink
from headrace.datastream.state import MapStateDescriptor
from headrace.gateways.job_master import JobDetails
from tests.integration.programs.committed_lines import committed_lines
from tests.integration.programs.gated import GATES, Gate, GatedSource
from tests.integration.programs.job_details import await_begun, await_details
from tests.integration.stored_savepoints.signals import Answers

pytestmark = pytest.mark.integration

COUNT, HELD_FROM = 100, 40
WAIT_S = 60
OPTIONS = {
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": "3",
    "restart-strategy.fixed-delay.delay": "10 ms",
}
EVERY_50_MS = {**OPTIONS, "execution.checkpointing.interval": "50 ms"}
HOURLY = {**OPTIONS, "execution.checkpointing.interval": "1 h"}


ANSWERS: Final[dict[str, Answers]] = {}


class Ask(AsyncFunction[int, str]):
    """Answers small numbers at once and others when they are released; the last one fails the job, once."""

    def __init__(self, name: str, marker: str) -> None:
        self._name = name
        self._marker = marker

    async def async_invoke(self, value: int) -> list[str]:
        if value >= HELD_FROM:
            await ANSWERS[self._name].event().wait()
        if value == COUNT - 1 and self._marker and not Path(self._marker).exists():
            Path(self._marker).touch()
            raise ValueError("it was to fail once")
        return [str(value)]


class Program:
    """Asks about numbers and writes the answers into files."""

    def __init__(self, env: StreamExecutionEnvironment, folder: Path, name: str) -> None:
        self.env = env
        self.folder = folder
        self.target = folder / "target"
        self.gate = GATES[name] = Gate(0)
        self.answers = ANSWERS[name] = Answers()
        self.name = name

    def configure(self, options: dict[str, str]) -> None:
        configuration = Configuration()
        for key, value in options.items():
            configuration.set_string(key, value)
        self.env.configure(configuration)

    def start(
        self, *, is_ordered: bool, count: int | None, marker: str = "", parallelism: int = 2
    ) -> JobClient:
        source = GatedSource(self.name, count)
        numbers = self.env.from_source(
            source, WatermarkStrategy.no_watermarks(), "numbers", Types.INT()
        ).set_parallelism(2)
        wait = AsyncDataStream.ordered_wait if is_ordered else AsyncDataStream.unordered_wait
        asked = wait(numbers, Ask(self.name, marker), Time.minutes(5), 500, Types.STRING())
        sink = FileSink.for_row_format(str(self.target), Encoder.simple_string_encoder()).build()
        asked.uid("ask").set_parallelism(parallelism).sink_to(sink).uid("sink")
        return self.env.execute_async(self.name)

    def written(self) -> Counter[str]:
        return committed_lines(self.target)


@pytest.fixture
def program(
    env: StreamExecutionEnvironment, tmp_path: Path, request: pytest.FixtureRequest
) -> Program:
    return Program(env, tmp_path, request.node.name)


def has_read_all(details: JobDetails) -> bool:
    return details.vertices[0].metrics.get("numRecordsIn", 0) >= COUNT


def expected() -> Counter[str]:
    return Counter(str(number) for number in range(COUNT))


@pytest.mark.parametrize("is_ordered", [True, False])
def test_calls_that_were_in_flight_at_a_checkpoint_are_made_again_after_a_failure(
    program: Program, is_ordered: bool
) -> None:
    program.configure(EVERY_50_MS)
    marker = str(program.folder / "failed")
    client = program.start(is_ordered=is_ordered, count=COUNT + 1, marker=marker)
    program.gate.open_to(COUNT)
    completed = await_details(client, has_read_all).checkpoints.counts.completed
    await_details(client, lambda details: details.checkpoints.counts.completed > completed + 1)
    program.answers.release()
    await_details(client, lambda details: details.checkpoints.counts.restored > 0)
    program.gate.open_to(COUNT + 1)
    client.get_job_execution_result().result(WAIT_S)
    assert program.written() == expected() + Counter({str(COUNT): 1})


@pytest.mark.parametrize(("is_ordered", "parallelism"), [(True, 2), (False, 1)])
def test_calls_in_flight_go_into_a_savepoint_and_on_at_another_parallelism(
    program: Program, is_ordered: bool, parallelism: int
) -> None:
    program.configure(HOURLY)
    client = program.start(is_ordered=is_ordered, count=None)
    program.gate.open_to(COUNT)
    await_begun(client, has_read_all)
    path = client.stop_with_savepoint(False, str(program.folder / "savepoints")).result(WAIT_S)
    assert client.get_job_status().result(WAIT_S) is JobStatus.FINISHED
    assert set(program.written()) <= {str(number) for number in range(HELD_FROM)}
    program.configure({**HOURLY, "execution.state-recovery.path": path})
    following = program.start(is_ordered=is_ordered, count=COUNT, parallelism=parallelism)
    program.answers.release()
    following.get_job_execution_result().result(WAIT_S)
    assert program.written() == expected()


SEEN = MapStateDescriptor("seen", Types.INT(), Types.BOOLEAN())


class Remember(BroadcastProcessFunction[Any, Any, Any]):
    """Keeps broadcast numbers; gives how many there are for each record of the data stream."""

    def process_element(
        self, value: int, ctx: BroadcastProcessFunction.ReadOnlyContext
    ) -> Iterable[str]:
        yield str(len(list(ctx.get_broadcast_state(SEEN).keys())))

    def process_broadcast_element(
        self, value: int, ctx: BroadcastProcessFunction.Context
    ) -> Iterable[str]:
        ctx.get_broadcast_state(SEEN).put(value, True)
        yield "seen"


def test_broadcast_states_are_in_savepoints_and_everywhere_afterwards(program: Program) -> None:
    data_gate = GATES[f"{program.name} data"] = Gate(0)

    def start(parallelism: int, count: int | None) -> JobClient:
        nothing = WatermarkStrategy.no_watermarks()
        rules = program.env.from_source(
            GatedSource(program.name, count), nothing, "rules", Types.INT()
        ).set_parallelism(1)
        data = program.env.from_source(
            GatedSource(f"{program.name} data", count), nothing, "data", Types.INT()
        ).set_parallelism(1)
        sink = FileSink.for_row_format(str(program.target), Encoder.simple_string_encoder()).build()
        met = data.rebalance().connect(rules.broadcast(SEEN)).process(Remember(), Types.STRING())
        met.set_parallelism(parallelism).uid("met").sink_to(sink).uid("sink")
        return program.env.execute_async(program.name)

    program.configure(HOURLY)
    client = start(1, None)
    program.gate.open_to(30)
    await_details(
        client,
        lambda details: (
            any(
                vertex.metrics.get("numRecordsOut", 0) >= 30
                for vertex in details.vertices
                if "rules" in vertex.name
            )
            # The other source may still be starting, and a savepoint needs all tasks.
            and all(
                subtask.state is ExecutionState.RUNNING
                for vertex in details.vertices
                for subtask in vertex.subtasks
            )
        ),
    )
    path = client.stop_with_savepoint(False, str(program.folder / "savepoints")).result(WAIT_S)
    assert program.written() == Counter({"seen": 30})
    program.configure({**HOURLY, "execution.state-recovery.path": path})
    following = start(2, 30)
    data_gate.open_to(30)
    following.get_job_execution_result().result(WAIT_S)
    assert program.written() == Counter({"seen": 30, "30": 30})
