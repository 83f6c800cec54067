"""A program that adds numbers up by key, whose savepoint is edited: it writes a line for each number."""

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from headrace import StreamExecutionEnvironment, Types, WatermarkStrategy
from headrace.api.client.job_client import JobClient
from headrace.common import Configuration, Encoder
from headrace.datastream import KeyedProcessFunction, RuntimeContext
from headrace.datastream.connectors.file_system import FileSink
from headrace.datastream.state import ListStateDescriptor, ValueStateDescriptor
from headrace.gateways.job_master import JobDetails
from testkit.exactly_once import lines_of_files
from tests.integration.programs.gated import GATES, Gate, GatedSource
from tests.integration.programs.job_details import await_details, every_task_runs

COUNT, SAVED, KEY_COUNT, WAIT_S = 400, 200, 7, 60
UID = "totals"


class AddUp(KeyedProcessFunction):
    """Keeps the total of each key, and the numbers that it saw."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self._total = runtime_context.get_state(ValueStateDescriptor("total", Types.LONG()))
        self._seen = runtime_context.get_list_state(ListStateDescriptor("seen", Types.LONG()))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        total = (self._total.value() or 0) + value
        self._total.update(total)
        self._seen.add(value)
        yield f"{ctx.get_current_key()} {total} of {len(list(self._seen.get() or ()))}"


class Totals:
    """The program in a folder: up to its savepoint, and on from another one."""

    def __init__(self, env: StreamExecutionEnvironment, folder: Path, name: str) -> None:
        self.env = env
        self.folder = folder
        self.key_file = folder / "key"
        self._name = name
        self._gate = Gate(0)

    def save(self, backend: str) -> str:
        """Add up the first numbers and stop; return the savepoint."""
        client = self._start(None, backend, "")
        self._gate.open_to(SAVED)
        await_details(client, every_task_runs)
        await_details(client, _has_read_all)
        return client.stop_with_savepoint(False, str(self.folder / "savepoints")).result(WAIT_S)

    def go_on(
        self, backend: str, savepoint: str, max_parallelism: int | None = None
    ) -> Counter[str]:
        """Add up the rest from a savepoint; return all lines of both runs."""
        client = self._start(COUNT, backend, savepoint, max_parallelism)
        self._gate.open_to(COUNT)
        client.get_job_execution_result().result(WAIT_S)
        files = lines_of_files(self.folder / "target")
        return Counter(line for lines in files.values() for line in lines)

    def _start(
        self, count: int | None, backend: str, path: str, max_parallelism: int | None = None
    ) -> JobClient:
        GATES[self._name] = self._gate
        settings = {
            "execution.checkpointing.interval": "1 h",
            "headrace.checkpoint.key-file": str(self.key_file),
            "state.backend.type": backend,
            "execution.state-recovery.path": path,
        }
        configuration = Configuration()
        for key, value in settings.items():
            if value:
                configuration.set_string(key, value)
        self.env.configure(configuration)
        self.env.set_parallelism(2)
        source = GatedSource(self._name, count)
        numbers = self.env.from_source(
            source, WatermarkStrategy.no_watermarks(), "numbers", Types.INT()
        )
        keyed = (
            numbers.set_parallelism(1).uid("numbers").key_by(lambda n: n % KEY_COUNT, Types.INT())
        )
        lines = keyed.process(AddUp(), output_type=Types.STRING()).uid(UID)
        if max_parallelism is not None:
            lines = lines.set_max_parallelism(max_parallelism)
        encoder = Encoder.simple_string_encoder()
        sink = FileSink.for_row_format(str(self.folder / "target"), encoder).build()
        lines.sink_to(sink).uid("write")
        return self.env.execute_async(self._name)


def expected(before_rest: Mapping[int, int], gone: int) -> Counter[str]:
    """All lines where totals were changed in between by `before_rest`, and nothing was left of key `gone`."""
    totals, seen, lines = Counter[int](), Counter[int](), Counter[str]()
    for number in range(COUNT):
        key = number % KEY_COUNT
        if number == SAVED:
            totals.update(before_rest)
            totals[gone] = seen[gone] = 0
        totals[key] += number
        seen[key] += 1
        lines[f"{key} {totals[key]} of {seen[key]}"] += 1
    return lines


def _has_read_all(details: JobDetails) -> bool:
    sources = [vertex for vertex in details.vertices if vertex.name.startswith("Source")]
    return [vertex.metrics.get("numRecordsOut", 0) for vertex in sources] == [SAVED]
