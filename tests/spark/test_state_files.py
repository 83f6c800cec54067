"""State in a savepoint, read by Spark alone, as docs/checkpoints.md says."""

import re
import threading
from pathlib import Path
from typing import Any

import pytest

from headrace import StreamExecutionEnvironment, Types, WatermarkStrategy
from headrace.checkpoint.options import (
    CHECKPOINT_DIRECTORY,
    DATA_INLINE_THRESHOLD,
    INTERVAL,
    KEY_FILE,
)
from headrace.checkpoint.retention.inspection import find_snapshots
from headrace.common import Configuration
from headrace.datastream import KeyedProcessFunction, RuntimeContext
from headrace.datastream.connectors.number_seq import NumberSequenceSource
from headrace.datastream.state import ValueStateDescriptor
from headrace.spark.session.session import HostSession
from headrace.testing.minicluster_executor import MiniClusterExecutor
from tests.architecture.floor_plan import ROOT

pytestmark = [pytest.mark.spark, pytest.mark.timeout(180)]
GUIDE = ROOT / "docs" / "checkpoints.md"
SHOWN_FOLDER = "/data/savepoints/savepoint-4f1c07-5b2e"


class CountPerKey(KeyedProcessFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        self._count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: Any, ctx: Any) -> Any:
        self._count.update((self._count.value() or 0) + 1)
        yield value


def savepoint_in(folder: Path) -> str:
    configuration = Configuration()
    for option, value in (
        (CHECKPOINT_DIRECTORY, str(folder / "checkpoints")),
        (KEY_FILE, str(folder / "key")),
        (DATA_INLINE_THRESHOLD, "0"),
        (INTERVAL, "100 ms"),
    ):
        configuration.set_string(option.key, value)
    with MiniClusterExecutor(slot_count=2):
        env = StreamExecutionEnvironment.get_execution_environment(configuration)
        env.set_parallelism(2)
        numbers = env.from_source(
            NumberSequenceSource(1, 1 << 40), WatermarkStrategy.no_watermarks(), "numbers"
        )
        keyed = numbers.key_by(lambda n: n % 5, key_type=Types.LONG())
        counted = keyed.process(CountPerKey(), output_type=Types.LONG()).uid("counter")
        counted.filter(lambda n: False).print()
        client = env.execute_async("counting")
        while not any("chk-" in one for one in find_snapshots(str(folder / "checkpoints"))):
            threading.Event().wait(0.05)
        return client.stop_with_savepoint(False, str(folder / "savepoints")).result()


def test_spark_alone_reads_keyed_state(
    session: HostSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = savepoint_in(tmp_path)
    (code,) = re.findall(r"^```py\n(.*?)^```$", GUIDE.read_text(), re.MULTILINE | re.DOTALL)
    assert SHOWN_FOLDER in code
    names: dict[str, Any] = {}
    capsys.readouterr()
    exec(compile(code.replace(SHOWN_FOLDER, path), str(GUIDE), "exec"), names)
    lines = capsys.readouterr().out.splitlines()
    assert [name.strip() for name in lines[1].strip("|").split("|")] == [
        "key_group",
        "key",
        "value",
    ]
    rows = names["spark"].read.parquet(*names["files"]).collect()
    assert sorted(row["key"] for row in rows) == [0, 1, 2, 3, 4]
    assert all(row["value"] > 0 for row in rows)
