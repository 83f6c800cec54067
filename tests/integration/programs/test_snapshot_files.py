"""Checkpoint folders of a job: open data, from which a later job goes on at another parallelism."""

import json
import threading
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from headrace import StreamExecutionEnvironment, Types, WatermarkStrategy
from headrace.api.client.job_client import JobClient
from headrace.checkpoint.metadata import CheckpointMetadata
from headrace.checkpoint.options import (
    CHECKPOINT_DIRECTORY,
    DATA_INLINE_THRESHOLD,
    INTERVAL,
    KEY_FILE,
    RECOVERY_PATH,
    RETENTION,
)
from headrace.checkpoint.retention.inspection import (
    find_snapshots,
    inspect_snapshot,
)
from headrace.checkpoint.storage.checkpoint_storage import load_snapshot
from headrace.checkpoint.storage.metadata_key import metadata_key
from headrace.common import Configuration, Encoder
from headrace.connectors.datagen.source import DataGeneratorSource
from headrace.core.config import Settings
from headrace.datastream import KeyedProcessFunction, RuntimeContext
from headrace.datastream.connectors.file_system import FileSink
from headrace.datastream.connectors.number_seq import NumberSequenceSource
from headrace.datastream.state import ValueStateDescriptor
from headrace.gateways.errors import CheckpointFailedError
from headrace.state_processor.verification import unsound_files

COUNT, KEY_COUNT = 3_000, 7
ENDED = ("numbers", "counter", "lines")
PAIR = Types.TUPLE([Types.LONG(), Types.LONG()])


class CountPerKey(KeyedProcessFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        self._count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: Any, ctx: Any) -> Any:
        count = (self._count.value() or 0) + 1
        self._count.update(count)
        yield ctx.get_current_key(), count


def count_numbers(env: StreamExecutionEnvironment, target: Path, last: int) -> None:
    sink = FileSink.for_row_format(str(target), Encoder.simple_string_encoder()).build()
    numbers = env.from_source(
        NumberSequenceSource(1, last), WatermarkStrategy.no_watermarks(), "numbers"
    ).uid("numbers")
    counts = numbers.key_by(lambda n: n % KEY_COUNT, key_type=Types.LONG())
    counted = counts.process(CountPerKey(), output_type=PAIR).uid("counter")
    lines = counted.map(lambda pair: f"{pair[0]} {pair[1]}", output_type=Types.STRING())
    lines.sink_to(sink).uid("lines")


@pytest.fixture
def settings(tmp_path: Path) -> dict[str, str]:
    return {
        CHECKPOINT_DIRECTORY.key: str(tmp_path / "checkpoints"),
        KEY_FILE.key: str(tmp_path / "key"),
        DATA_INLINE_THRESHOLD.key: "0",
        INTERVAL.key: "100 ms",
        RETENTION.key: "RETAIN_ON_CANCELLATION",
        "restart-strategy.type": "none",
    }


def configured(env: StreamExecutionEnvironment, settings: dict[str, str]) -> None:
    configuration = Configuration()
    for key, value in settings.items():
        configuration.set_string(key, value)
    env.configure(configuration)


def test_a_savepoint_is_open_data(
    env: StreamExecutionEnvironment, settings: dict[str, str], tmp_path: Path
) -> None:
    configured(env, settings)
    env.set_parallelism(2)
    count_numbers(env, tmp_path / "lines", 100_000_000)
    client = env.execute_async("counting")
    await_checkpoint(settings)
    path = client.stop_with_savepoint(False, str(tmp_path / "savepoints")).result()
    folder = Path(path)
    document = json.loads((folder / "_metadata").read_text())
    operators = {one["uid"]: one for one in document["operators"]}
    assert {"numbers", "counter", "lines"} <= operators.keys()
    rows: dict[int, int] = {}
    for subtask in operators["counter"]["subtasks"]:
        for chunk in subtask["chunks"]:
            if chunk["table"] == "keyed":
                table = pq.read_table(folder / chunk["path"])
                rows |= dict(zip(table["key"].to_pylist(), table["value"].to_pylist(), strict=True))
    assert rows.keys() <= set(range(KEY_COUNT))
    snapshot = load_snapshot(path, Settings(settings))
    assert list(unsound_files(snapshot.metadata)) == []
    assert counts_in(tmp_path / "lines") == rows


def await_checkpoint(settings: dict[str, str], *finished: str) -> None:
    """Return once a checkpoint is complete in which operators with these uids had finished."""
    key = metadata_key(Settings(settings))
    while True:
        for folder in find_snapshots(settings[CHECKPOINT_DIRECTORY.key]):
            found = inspect_snapshot(folder, key)
            if found.metadata is not None and set(finished) <= finished_in(found.metadata):
                return
        threading.Event().wait(0.01)


def stop_once_nothing_ends(client: JobClient, target: Path) -> str:
    """A savepoint that meets tasks which are just ending is refused, and asked for again."""
    while True:
        try:
            return client.stop_with_savepoint(False, str(target)).result()
        except CheckpointFailedError as error:
            assert "end" in str(error)


def finished_in(metadata: CheckpointMetadata) -> set[str | None]:
    return {one.uid for one in metadata.operators if one.is_finished}


def counts_in(folder: Path) -> dict[int, int]:
    """The last count of each key; that none is twice or missing is asserted."""
    found: dict[int, list[int]] = {}
    for file in sorted(folder.rglob("*")):
        if file.is_file() and not file.name.startswith("."):
            for line in file.read_text().splitlines():
                key, _, count = line.partition(" ")
                found.setdefault(int(key), []).append(int(count))
    for counts in found.values():
        assert sorted(counts) == list(range(1, len(counts) + 1))
    return {key: len(counts) for key, counts in found.items()}


def test_a_job_goes_on_from_a_savepoint_at_another_parallelism(
    env: StreamExecutionEnvironment, settings: dict[str, str], tmp_path: Path
) -> None:
    configured(env, settings)
    env.set_parallelism(1)
    count_numbers(env, tmp_path / "lines", 300_000)
    client = env.execute_async("counting")
    await_checkpoint(settings)
    path = client.stop_with_savepoint(False, str(tmp_path / "savepoints")).result()
    before = sum(counts_in(tmp_path / "lines").values())
    configured(env, {RECOVERY_PATH.key: path})
    env.set_parallelism(2)
    count_numbers(env, tmp_path / "lines", 300_000)
    env.execute("counting on")
    assert 0 < before < 300_000
    assert counts_in(tmp_path / "lines") == {
        key: len(range(key or KEY_COUNT, 300_001, KEY_COUNT)) for key in range(KEY_COUNT)
    }


def test_what_had_finished_stays_finished(
    env: StreamExecutionEnvironment, settings: dict[str, str], tmp_path: Path
) -> None:
    """One part of the job ends, another does not; the job is stopped and goes on, at another parallelism."""
    ends, goes_on = tmp_path / "ends", tmp_path / "goes on"
    configured(env, settings)
    for parallelism in (1, 2):
        env.set_parallelism(parallelism)
        count_numbers(env, ends, COUNT)
        endless = DataGeneratorSource(lambda n: n, 1_000_000, Types.LONG(), 100.0)
        lines = env.from_source(endless, WatermarkStrategy.no_watermarks(), "endless").uid(
            "endless"
        )
        sink = FileSink.for_row_format(str(goes_on), Encoder.simple_string_encoder()).build()
        lines.map(str, output_type=Types.STRING()).sink_to(sink).uid("endless lines")
        client = env.execute_async("half of it ends")
        await_checkpoint(settings, *ENDED)
        path = stop_once_nothing_ends(client, tmp_path / "savepoints")
        configured(env, {RECOVERY_PATH.key: path})
    assert sum(counts_in(ends).values()) == COUNT
    finished = finished_in(load_snapshot(path, Settings(settings)).metadata)
    assert set(ENDED) <= finished
    assert "endless" not in finished


def test_a_finished_job_leaves_no_checkpoint(
    env: StreamExecutionEnvironment, settings: dict[str, str], tmp_path: Path
) -> None:
    configured(env, settings)
    env.set_parallelism(2)
    count_numbers(env, tmp_path / "lines", COUNT)
    env.execute("counting")
    assert find_snapshots(settings[CHECKPOINT_DIRECTORY.key]) == []
