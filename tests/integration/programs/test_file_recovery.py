"""Programs that read files, stop or fail, and go on: every line of every file comes out once."""

from collections import Counter
from pathlib import Path

import pytest

from headrace import Duration, StreamExecutionEnvironment, Types, WatermarkStrategy
from headrace.api.client.job_client import JobClient
from headrace.common import Configuration, Encoder
from headrace.datastream import MapFunction, RuntimeContext
from headrace.datastream.connectors.file_system import FileSink, FileSource, StreamFormat
from headrace.gateways.job_master import JobDetails
from tests.integration.programs.committed_lines import committed_lines
from tests.integration.programs.job_details import await_begun

pytestmark = pytest.mark.integration

WAIT_S = 60
OPTIONS = {
    "execution.checkpointing.interval": "50 ms",
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": "3",
    "restart-strategy.fixed-delay.delay": "10 ms",
}


class FailOnce(MapFunction):
    """Passes lines on; the first attempt fails at one of them."""

    def __init__(self, line: str) -> None:
        self._line = line

    def open(self, runtime_context: RuntimeContext) -> None:
        self._is_first = runtime_context.get_attempt_number() == 0

    def map(self, value: str) -> str:
        if value == self._line and self._is_first:
            raise ValueError(f"{value} was to fail once")
        return value


def configured(env: StreamExecutionEnvironment, options: dict[str, str]) -> None:
    configuration = Configuration()
    for key, value in options.items():
        configuration.set_string(key, value)
    env.configure(configuration)


def source_of(folder: Path, *, watches: bool) -> FileSource:
    builder = FileSource.for_record_stream_format(StreamFormat.text_line_format(), str(folder))
    if watches:
        builder.monitor_continuously(Duration.of_millis(20))
    return builder.with_split_size(1000).build()


def write_lines(folder: Path, name: str, count: int) -> list[str]:
    folder.mkdir(exist_ok=True)
    lines = [f"{name}-{number}" for number in range(count)]
    # A file that is watched for appears whole.
    hidden = folder / f".{name}"
    hidden.write_text("\n".join(lines), encoding="utf-8")
    hidden.rename(folder / name)
    return lines


def await_rows(client: JobClient, count: int) -> None:
    """Ask until the source of lines has sent so many rows, and every task has begun."""

    def has_sent(details: JobDetails) -> bool:
        (source,) = [vertex for vertex in details.vertices if "lines" in vertex.name]
        return source.metrics.get("numRecordsOut", 0) >= count

    await_begun(client, has_sent)


def sink_to(target: Path) -> FileSink:
    return FileSink.for_row_format(str(target), Encoder.simple_string_encoder()).build()


def test_a_program_that_fails_over_a_folder_of_files_reads_each_line_once(
    env: StreamExecutionEnvironment, tmp_path: Path
) -> None:
    lines = write_lines(tmp_path / "in", "a", 2000) + write_lines(tmp_path / "in", "b", 700)
    configured(env, OPTIONS)
    env.set_parallelism(2)
    source = source_of(tmp_path / "in", watches=False)
    (
        env.from_source(source, WatermarkStrategy.no_watermarks(), "lines")
        .map(FailOnce("b-600"), output_type=Types.STRING())
        .sink_to(sink_to(tmp_path / "out"))
    )
    env.execute("files")
    assert committed_lines(tmp_path / "out") == Counter(lines)


def test_a_folder_that_is_watched_goes_on_from_a_savepoint_in_a_changed_program(
    env: StreamExecutionEnvironment, tmp_path: Path
) -> None:
    lines = write_lines(tmp_path / "in", "a", 900)
    source = source_of(tmp_path / "in", watches=True)
    configured(env, OPTIONS)
    env.set_parallelism(2)
    read = env.from_source(source, WatermarkStrategy.no_watermarks(), "lines").uid("lines")
    read.disable_chaining().sink_to(sink_to(tmp_path / "out")).uid("sink")
    client = env.execute_async("before")
    await_rows(client, len(lines))
    savepoint = client.stop_with_savepoint(False, str(tmp_path / "savepoints")).result(WAIT_S)
    assert committed_lines(tmp_path / "out") == Counter(lines)

    lines += write_lines(tmp_path / "in", "b", 800)
    configured(env, {**OPTIONS, "execution.state-recovery.path": savepoint})
    env.set_parallelism(1)
    read = env.from_source(source, WatermarkStrategy.no_watermarks(), "lines").uid("lines")
    added = env.from_collection(["new-1", "new-2"], Types.STRING()).uid("added")
    read.disable_chaining().union(added).sink_to(sink_to(tmp_path / "out")).uid("sink")
    client = env.execute_async("after")
    await_rows(client, 800)
    client.stop_with_savepoint(False, str(tmp_path / "savepoints")).result(WAIT_S)
    assert committed_lines(tmp_path / "out") == Counter([*lines, "new-1", "new-2"])
