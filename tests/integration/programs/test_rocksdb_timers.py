"""Programs whose timers are in RocksDB: each fires once, whatever fails, also on another backend later."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace import StreamExecutionEnvironment, Types, WatermarkStrategy
from headrace.api.client.job_client import JobClient
from headrace.common import Configuration, Encoder
from headrace.common.watermark_strategy import TimestampAssigner
from headrace.datastream import KeyedProcessFunction
from headrace.datastream.connectors.file_system import FileSink
from tests.integration.programs.committed_lines import committed_lines
from tests.integration.programs.gated import GATES, Gate, GatedSource
from tests.integration.programs.job_details import await_begun, await_details
from tests.integration.programs.recovery_program import (
    EVERY_50_MS,
    HOURLY,
    WAIT_S,
    has_read,
)

pytestmark = pytest.mark.integration

COUNT, KEY_COUNT, LATER_MS = 2_000, 7, 500
ROCKSDB = {"state.backend.type": "rocksdb", "execution.checkpointing.incremental": "true"}


class _Itself(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return value


class Remind(KeyedProcessFunction):
    """Sets a timer for each number, and emits it when that fires; fails once, at a timer, where the marker is not."""

    def __init__(self, marker: str, fails_at: int) -> None:
        self._marker = marker
        self._fails_at = fails_at

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> None:
        ctx.timer_service().register_event_time_timer(value + LATER_MS)

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[str]:
        number = timestamp - LATER_MS
        if number == self._fails_at and not Path(self._marker).exists():
            Path(self._marker).touch()
            raise ValueError("it was to fail once")
        yield f"{ctx.get_current_key()} {number}"


class Program:
    def __init__(self, env: StreamExecutionEnvironment, folder: Path) -> None:
        self._env = env
        self._folder = folder
        self._name = f"timers {folder.name}"
        self.gate = GATES[self._name] = Gate(COUNT // 2)

    def start(
        self, options: dict[str, str], fails_at: int = -1, count: int | None = COUNT
    ) -> JobClient:
        configuration = Configuration()
        for key, value in options.items():
            configuration.set_string(key, value)
        self._env.configure(configuration)
        self._env.set_parallelism(2)
        strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(_Itself())
        source = GatedSource(self._name, count)
        sink = FileSink.for_row_format(
            str(self._folder / "target"), Encoder.simple_string_encoder()
        ).build()
        (
            self._env.from_source(source, strategy, "numbers", Types.INT())
            .uid("numbers")
            .key_by(lambda number: number % KEY_COUNT, key_type=Types.INT())
            .process(Remind(str(self._folder / "failed"), fails_at), output_type=Types.STRING())
            .uid("remind")
            .sink_to(sink)
            .uid("sink")
        )
        return self._env.execute_async(self._name)

    def finish(self, client: JobClient) -> Counter[str]:
        self.gate.open_to(COUNT)
        client.get_job_execution_result().result(WAIT_S)
        return committed_lines(self._folder / "target")


EXPECTED = Counter(f"{number % KEY_COUNT} {number}" for number in range(COUNT))


def test_every_timer_fires_once_although_the_program_fails(
    env: StreamExecutionEnvironment, tmp_path: Path
) -> None:
    program = Program(env, tmp_path)
    folders = {
        "execution.checkpointing.dir": str(tmp_path / "checkpoints"),
        "headrace.checkpoint.key-file": str(tmp_path / "key"),
    }
    client = program.start(EVERY_50_MS | ROCKSDB | folders, fails_at=COUNT // 2)
    await_details(client, lambda details: details.checkpoints.counts.completed > 3)
    assert program.finish(client) == EXPECTED
    assert client.get_job_details().result(WAIT_S).checkpoints.counts.restored == 1


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (ROCKSDB, {"state.backend.type": "hashmap"}),
        ({"state.backend.type": "hashmap"}, ROCKSDB),
        (ROCKSDB, {"state.backend.rocksdb.timer-service.factory": "HEAP"}),
    ],
    ids=["to the heap", "from the heap", "to the heap beside RocksDB"],
)
def test_timers_of_a_savepoint_go_on_wherever_they_are_kept(
    env: StreamExecutionEnvironment,
    tmp_path: Path,
    before: dict[str, str],
    after: dict[str, str],
) -> None:
    program = Program(env, tmp_path)
    client = program.start(HOURLY | before, count=None)
    await_begun(client, has_read(COUNT // 2))
    path = client.stop_with_savepoint(False, str(tmp_path / "savepoints")).result(WAIT_S)
    again = program.start({"execution.state-recovery.path": path, **after})
    assert program.finish(again) == EXPECTED
