"""Programs whose checkpoints, savepoints and archives lie in an object store: a real S3 server that the tests start."""

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace import StreamExecutionEnvironment, Types, WatermarkStrategy
from headrace.checkpoint.options import (
    CHECKPOINT_DIRECTORY,
    DATA_INLINE_THRESHOLD,
    INTERVAL,
    KEY_FILE,
    RECOVERY_PATH,
)
from headrace.checkpoint.retention.inspection import find_snapshots
from headrace.checkpoint.storage.file_systems import child_uri, files_below, remove_file
from headrace.common import Configuration, Encoder
from headrace.core.clock import SystemClock
from headrace.core.config import Settings
from headrace.datastream import KeyedProcessFunction, RuntimeContext
from headrace.datastream.connectors.file_system import FileSink
from headrace.datastream.state import ValueStateDescriptor
from headrace.rest.client import RestClient
from headrace.rest.history.history_server import HistoryServer
from headrace.rest.home.connections import find_connection
from headrace.testing.minicluster_executor import MiniClusterExecutor
from testkit.waiting import wait_until
from tests.integration.programs.committed_lines import committed_lines
from tests.integration.programs.gated import GATES, Gate, GatedSource
from tests.integration.programs.s3_server import BUCKET, CREDENTIALS, running_server

pytestmark = pytest.mark.integration

COMMAND = str(Path(sys.executable).parent / "headrace")
KEY_COUNT, COUNT = 7, 1_000
FIRST = 300
PAIR = Types.TUPLE([Types.LONG(), Types.LONG()])


@pytest.fixture(scope="module")
def store() -> Iterator[str]:
    """The URI of a folder of the bucket."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in CREDENTIALS.items():
            patch.setenv(name, value)
        with running_server(dict(os.environ)) as server:
            yield server.folder("job")


class CountPerKey(KeyedProcessFunction):
    """Fails once, in the midst of what is let through when a checkpoint is complete."""

    def __init__(self, marker: Path) -> None:
        self._marker = marker

    def open(self, runtime_context: RuntimeContext) -> None:
        self._count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: Any, ctx: Any) -> Any:
        if value == FIRST + KEY_COUNT and not self._marker.exists():
            self._marker.touch()
            raise ValueError("it was to fail once")
        count = (self._count.value() or 0) + 1
        self._count.update(count)
        yield ctx.get_current_key(), count


def count_numbers(env: StreamExecutionEnvironment, folder: Path, count: int | None) -> None:
    source = GatedSource(folder.name, count)
    numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers", Types.LONG())
    keyed = numbers.uid("numbers").key_by(lambda n: n % KEY_COUNT, key_type=Types.LONG())
    counted = keyed.process(CountPerKey(folder / "failed"), output_type=PAIR).uid("counter")
    lines = counted.map(lambda pair: f"{pair[0]} {pair[1]}", output_type=Types.STRING())
    sink = FileSink.for_row_format(str(folder / "lines"), Encoder.simple_string_encoder())
    lines.sink_to(sink.build()).uid("lines")


def lines_of(count: int) -> Counter[str]:
    return Counter(f"{number % KEY_COUNT} {number // KEY_COUNT + 1}" for number in range(count))


def verified(path: str, key_file: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [COMMAND, "checkpoint", "verify", "--key-file", str(key_file), path],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def test_a_history_server_shows_a_job_whose_archive_lies_in_s3(
    store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_HOME", str(tmp_path / "home"))
    archives = child_uri(store, "archives")
    settings = {"rest.enabled": "true", "rest.port": "0", "jobmanager.archive.fs.dir": archives}
    with MiniClusterExecutor(slot_count=1, settings=settings):
        program = StreamExecutionEnvironment.get_execution_environment()
        program.from_collection([1, 2], type_info=Types.LONG()).print()
        job = str(program.execute("archived").get_job_id())
    settings = {"historyserver.archive.fs.dir": archives, "historyserver.web.port": "0"}
    server = HistoryServer(Settings(settings), SystemClock())
    try:
        assert server.first_look.wait(30)
        history = RestClient.of(find_connection(None, print))
        assert [one["name"] for one in history.get("/jobs/overview")["jobs"]] == ["archived"]
        assert history.get(f"/jobs/{job}")["state"] == "FINISHED"
    finally:
        server.close()


def test_a_job_recovers_from_s3_and_goes_on_from_a_savepoint_there(
    env: StreamExecutionEnvironment, store: str, tmp_path: Path
) -> None:
    checkpoints, key_file = child_uri(store, "checkpoints"), tmp_path / "key"
    settings = {
        CHECKPOINT_DIRECTORY.key: checkpoints,
        KEY_FILE.key: str(key_file),
        DATA_INLINE_THRESHOLD.key: "0",
        INTERVAL.key: "100 ms",
        "restart-strategy.type": "fixed-delay",
        "restart-strategy.fixed-delay.delay": "10 ms",
    }
    env.configure(Configuration.from_dict(settings))
    gate = GATES[tmp_path.name] = Gate(FIRST)
    env.set_parallelism(1)
    count_numbers(env, tmp_path, None)
    client = env.execute_async("counting")
    wait_until(lambda: committed_lines(tmp_path / "lines") == lines_of(FIRST))
    # A listing of an object store is no snapshot: while one checkpoint takes another's place it may show neither.
    wait_until(lambda: bool(find_snapshots(checkpoints)))
    gate.open_to(2 * FIRST)
    wait_until(lambda: committed_lines(tmp_path / "lines") == lines_of(2 * FIRST))
    assert (tmp_path / "failed").exists()
    path = client.stop_with_savepoint(False, child_uri(store, "savepoints")).result()

    assert path.startswith(f"s3://{BUCKET}/job/savepoints/")
    done = verified(path, key_file)
    assert (done.returncode, done.stderr) == (0, ""), done

    env.configure(Configuration.from_dict({RECOVERY_PATH.key: path}))
    env.set_parallelism(2)
    gate.open_to(COUNT)
    count_numbers(env, tmp_path, COUNT)
    env.execute("counting on")
    assert committed_lines(tmp_path / "lines") == lines_of(COUNT)

    lost = next(one for one in files_below(path) if not one.relative_path.startswith("_"))
    remove_file(lost.uri)
    done = verified(path, key_file)
    assert done.returncode == 1, done
    assert lost.relative_path in done.stdout + done.stderr
