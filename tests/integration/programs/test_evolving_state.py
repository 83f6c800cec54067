"""A program whose state has another type goes on from a savepoint, or is refused before anything was touched."""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace import Row, StreamExecutionEnvironment, Types, WatermarkStrategy
from headrace.api.client.job_client import JobClient
from headrace.checkpoint.retention.inspection import SnapshotCondition, inspect_snapshot
from headrace.checkpoint.storage.metadata_key import metadata_key
from headrace.cli.snapshots import key_settings
from headrace.common import Configuration, Encoder
from headrace.core.errors import JobCancelledError, JobExecutionError
from headrace.core.types.type_info import RowTypeInfo, TypeInformation
from headrace.datastream import KeyedProcessFunction, RuntimeContext
from headrace.datastream.connectors.file_system import FileSink
from headrace.datastream.state import ValueStateDescriptor
from headrace.gateways.job_master import JobDetails
from headrace.state_processor.verification import unsound_files
from testkit.exactly_once import lines_of_files
from tests.integration.programs.gated import GATES, Gate, GatedSource
from tests.integration.programs.job_details import await_details, every_task_runs

pytestmark = pytest.mark.integration

COUNT, SAVED, KEY_COUNT, WAIT_S = 400, 200, 7, 60
Describe = Callable[[], ValueStateDescriptor]


def described(names: list[str], types: list[TypeInformation]) -> ValueStateDescriptor:
    return ValueStateDescriptor("tally", Types.ROW_NAMED(names, types))


def as_stored() -> ValueStateDescriptor:
    return described(["seen", "last"], [Types.INT(), Types.INT()])


def widened() -> ValueStateDescriptor:
    return described(["seen", "last"], [Types.LONG(), Types.LONG()])


def renamed() -> ValueStateDescriptor:
    descriptor = described(["count", "last"], [Types.INT(), Types.INT()])
    descriptor.evolve_field("count", renamed_from="seen")
    return descriptor


def moved_and_added() -> ValueStateDescriptor:
    names, types = ["last", "note", "seen"], [Types.INT(), Types.STRING(), Types.INT()]
    descriptor = described(names, types)
    descriptor.evolve_field("note", default="was there before")
    return descriptor


def incompatible() -> ValueStateDescriptor:
    return described(["seen", "last"], [Types.STRING(), Types.INT()])


class Tally(KeyedProcessFunction):
    """Gives key, how many numbers it has seen, and the one before; keeps both in a row of the described type."""

    def __init__(self, describe: Describe) -> None:
        self._describe = describe

    def open(self, runtime_context: RuntimeContext) -> None:
        descriptor = self._describe()
        assert isinstance(descriptor.type_info, RowTypeInfo)
        names = descriptor.type_info.field_names
        self._seen = next(name for name in names if name in ("seen", "count"))
        self._others = [name for name in names if name not in (self._seen, "last")]
        self._state = runtime_context.get_state(descriptor)

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        stored = self._state.value()
        seen, last = (0, -1) if stored is None else (stored[self._seen], stored["last"])
        kept = {name: None if stored is None else stored[name] for name in self._others}
        self._state.update(Row(**{self._seen: seen + 1, "last": value}, **kept))
        yield f"{ctx.get_current_key()} {seen + 1} after {last}"


class Program:
    """Tallies numbers per key into files, beside a second pipeline whose state never changes."""

    def __init__(self, env: StreamExecutionEnvironment, folder: Path, name: str) -> None:
        self.env = env
        self.folder = folder
        self.target = folder / "target"
        self.key_file = folder / "key"
        self._name = name
        self.gate = Gate(0)

    def start(self, describe: Describe, count: int | None, **options: str) -> JobClient:
        """`options`: `path` to restore from and `backend`."""
        GATES[self._name] = self.gate
        settings = {
            "execution.checkpointing.interval": "1 h",
            "headrace.checkpoint.key-file": str(self.key_file),
            "state.backend.type": options["backend"],
            "execution.state-recovery.path": options.get("path", ""),
            "restart-strategy.type": "fixed-delay",
            "restart-strategy.fixed-delay.attempts": "1000000",
            "restart-strategy.fixed-delay.delay": "1 ms",
        }
        configuration = Configuration()
        for key, value in settings.items():
            if value:
                configuration.set_string(key, value)
        self.env.configure(configuration)
        self.env.set_parallelism(2)
        numbers = self._numbers("numbers", count).key_by(lambda n: n % KEY_COUNT, Types.INT())
        tallied = numbers.process(Tally(describe), output_type=Types.STRING()).name("Tally")
        self._write(tallied.uid("tally"), "tallies")
        others = self._numbers("others", count).map(str, output_type=Types.STRING())
        self._write(others.uid("texts"), "texts")
        return self.env.execute_async(self._name)

    def _numbers(self, uid: str, count: int | None) -> Any:
        source = GatedSource(self._name, count)
        stream = self.env.from_source(source, WatermarkStrategy.no_watermarks(), uid, Types.INT())
        return stream.set_parallelism(1).uid(uid)

    def _write(self, lines: Any, name: str) -> None:
        target = str(self.target / name)
        sink = FileSink.for_row_format(target, Encoder.simple_string_encoder()).build()
        lines.sink_to(sink).uid(f"write {name}")

    def save(self, backend: str) -> str:
        """Run as first written up to a savepoint; all its output is committed then."""
        client = self._run_up_to_saved(backend)
        return client.stop_with_savepoint(False, str(self.folder / "savepoints")).result(WAIT_S)

    def save_and_cancel(self, backend: str) -> str:
        """Run as first written up to a savepoint and no further; none of its output is committed then."""
        client = self._run_up_to_saved(backend)
        path = client.trigger_savepoint(str(self.folder / "savepoints")).result(WAIT_S)
        client.cancel().result(WAIT_S)
        with pytest.raises(JobCancelledError):
            client.get_job_execution_result().result(WAIT_S)
        return path

    def _run_up_to_saved(self, backend: str) -> JobClient:
        client = self.start(as_stored, None, backend=backend)
        self.gate.open_to(SAVED)
        await_details(client, every_task_runs)
        await_details(client, has_read_all)
        return client

    def written(self) -> Counter[str]:
        return Counter(line for lines in self.files().values() for line in lines)

    def files(self) -> dict[str, list[str]]:
        return lines_of_files(self.target)


def has_read_all(details: JobDetails) -> bool:
    sources = [vertex for vertex in details.vertices if vertex.name.startswith("Source")]
    read = [vertex.metrics.get("numRecordsOut", 0) for vertex in sources]
    return read == [SAVED, SAVED]


def expected(count: int) -> Counter[str]:
    tallies = Counter(
        f"{n % KEY_COUNT} {n // KEY_COUNT + 1} after {max(n - KEY_COUNT, -1)}" for n in range(count)
    )
    return tallies + Counter(map(str, range(count)))


def digests(folder: str) -> dict[str, str]:
    path = Path(folder.removeprefix("file:"))
    return {
        str(file.relative_to(path)): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in path.rglob("*")
        if file.is_file()
    }


@pytest.fixture
def program(
    env: StreamExecutionEnvironment, tmp_path: Path, request: pytest.FixtureRequest
) -> Program:
    return Program(env, tmp_path, request.node.name)


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
@pytest.mark.parametrize("describe", [widened, renamed, moved_and_added])
def test_a_program_whose_state_may_follow_its_type_goes_on_with_the_values_that_were_stored(
    program: Program, describe: Describe, backend: str
) -> None:
    path = program.save(backend)
    following = program.start(describe, COUNT, backend=backend, path=path)
    program.gate.open_to(COUNT)
    following.get_job_execution_result().result(WAIT_S)
    assert program.written() == expected(COUNT)


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_a_program_whose_state_cannot_follow_ends_and_touches_neither_savepoint_nor_output(
    program: Program, backend: str
) -> None:
    path = program.save(backend)
    files, stored = program.files(), digests(path)
    assert program.written() == expected(SAVED)
    program.gate.open_to(COUNT)
    refused = program.start(incompatible, COUNT, backend=backend, path=path)
    with pytest.raises(JobExecutionError) as ended:
        refused.get_job_execution_result().result(WAIT_S)
    assert (
        "state 'tally' cannot be converted to its new type: field 'seen' was int32 and is string now"
        in str(ended.value)
    )
    assert "Tally" in str(ended.value)
    assert program.files() == files
    assert digests(path) == stored
    inspected = inspect_snapshot(path, metadata_key(key_settings(str(program.key_file))))
    assert inspected.condition is SnapshotCondition.COMPLETE and inspected.metadata is not None
    assert [*unsound_files(inspected.metadata)] == []
    unchanged = program.start(as_stored, COUNT, backend=backend, path=path)
    unchanged.get_job_execution_result().result(WAIT_S)
    assert program.written() == expected(COUNT)


def test_a_refused_program_commits_what_a_savepoint_had_prepared_and_nothing_of_its_own(
    program: Program,
) -> None:
    path = program.save_and_cancel("hashmap")
    stored = digests(path)
    assert program.files() == {}
    program.gate.open_to(COUNT)
    refused = program.start(incompatible, COUNT, backend="hashmap", path=path)
    with pytest.raises(
        JobExecutionError, match="state 'tally' cannot be converted to its new type"
    ):
        refused.get_job_execution_result().result(WAIT_S)
    assert program.written() == expected(SAVED)
    assert digests(path) == stored
    unchanged = program.start(as_stored, COUNT, backend="hashmap", path=path)
    unchanged.get_job_execution_result().result(WAIT_S)
    assert program.written() == expected(COUNT)
