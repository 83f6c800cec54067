"""A program that fails and recovers, and what it is to write."""

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from headrace import StreamExecutionEnvironment, Types, WatermarkStrategy
from headrace.api.client.job_client import JobClient
from headrace.common import Configuration, Encoder
from headrace.datastream import KeyedProcessFunction, RuntimeContext
from headrace.datastream.connectors.file_system import FileSink
from headrace.datastream.state import ValueStateDescriptor
from headrace.gateways.job_master import JobDetails
from tests.integration.programs.committed_lines import committed_lines
from tests.integration.programs.gated import GATES, Gate, GatedSource

COUNT, KEY_COUNT = 700, 7


PAIR = Types.TUPLE([Types.INT(), Types.INT()])


WAIT_S = 60


class CountPerKey(KeyedProcessFunction):
    """Counts; fails when it counts `fails_at` for a key, unless the marker says that it has failed before."""

    def __init__(self, marker: str, fails_at: int) -> None:
        self._marker = marker
        self._fails_at = fails_at

    def open(self, runtime_context: RuntimeContext) -> None:
        self._count = runtime_context.get_state(ValueStateDescriptor("count", Types.INT()))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        count = (self._count.value() or 0) + 1
        self._count.update(count)
        if count == self._fails_at and not Path(self._marker).exists():
            Path(self._marker).touch()
            raise ValueError("it was to fail once")
        yield ctx.get_current_key(), count


class Program:
    """Counts numbers per key into files; the gate lets the numbers through."""

    def __init__(self, env: StreamExecutionEnvironment, folder: Path, name: str) -> None:
        self.env = env
        self.folder = folder
        self.target = folder / "target"
        self.gate = GATES[name] = Gate(0)
        self._name = name

    def configure(self, options: dict[str, str]) -> "Program":
        configuration = Configuration()
        for key, value in options.items():
            configuration.set_string(key, value)
        self.env.configure(configuration)
        return self

    def start(
        self, count: int | None = COUNT, fails_at: int = 0, parallelism: int = 2
    ) -> JobClient:
        sink = FileSink.for_row_format(str(self.target), Encoder.simple_string_encoder()).build()
        source = GatedSource(self._name, count)
        self.env.set_parallelism(parallelism)
        (
            self.env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers", Types.INT())
            .key_by(lambda number: number % KEY_COUNT, key_type=Types.INT())
            .process(CountPerKey(str(self.folder / "failed"), fails_at), output_type=PAIR)
            .uid("count")
            .map(lambda pair: f"{pair[0]} {pair[1]}", output_type=Types.STRING())
            .sink_to(sink)
            .uid("sink")
        )
        return self.env.execute_async(self._name)

    def written(self) -> Counter[str]:
        return committed_lines(self.target)


def expected(count: int = COUNT) -> Counter[str]:
    per_key = Counter(number % KEY_COUNT for number in range(count))
    return Counter(f"{key} {n}" for key, total in per_key.items() for n in range(1, total + 1))


def has_read(count: int) -> Callable[[JobDetails], bool]:
    return lambda details: details.vertices[0].metrics.get("numRecordsOut", 0) >= count


EVERY_50_MS = {
    "execution.checkpointing.interval": "50 ms",
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": "3",
    "restart-strategy.fixed-delay.delay": "10 ms",
}


HOURLY = {"execution.checkpointing.interval": "1 h"}
