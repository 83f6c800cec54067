"""A job that starts from a checkpoint without what was in flight: it has lost those records, and no other."""

from collections import Counter
from pathlib import Path

import pytest

from headrace import StreamExecutionEnvironment, Types, WatermarkStrategy
from headrace.api.client.job_client import JobClient
from headrace.checkpoint.handles import StateTable
from headrace.checkpoint.metadata import CheckpointMetadata
from headrace.checkpoint.retention.inspection import (
    SnapshotCondition,
    find_snapshots,
    inspect_snapshot,
)
from headrace.checkpoint.storage.metadata_key import metadata_key
from headrace.common import Configuration, Encoder
from headrace.core.config import Settings
from headrace.core.errors import JobCancelledError
from headrace.datastream.connectors.file_system import FileSink
from tests.integration.programs.committed_lines import committed_lines
from tests.integration.programs.gated import GATES, Gate, GatedSource
from tests.integration.programs.unaligned_program import (
    KEY_COUNT,
    PAIR,
    TAPS,
    WAIT_S,
    SlowCount,
    Tap,
)

pytestmark = pytest.mark.integration

COUNT = 40_000
"""Many more than pass before three checkpoints are complete, however slow the machine is."""


class _Program:
    """Counts numbers per key into files, as slowly as the tap lets it; its checkpoints stay when it is cancelled."""

    def __init__(self, env: StreamExecutionEnvironment, folder: Path) -> None:
        self._env = env
        self.folder = folder
        self.name = f"without channel state {folder.name}"
        self.tap = TAPS[self.name] = Tap()
        GATES[self.name] = Gate(COUNT)

    def start(self, **recovery: str) -> JobClient:
        self.tap = TAPS[self.name] = Tap()
        configuration = Configuration()
        for key, value in {
            "execution.checkpointing.interval": "50 ms",
            "execution.checkpointing.dir": str(self.folder / "checkpoints"),
            "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
            "execution.checkpointing.unaligned.enabled": "true",
            "headrace.checkpoint.key-file": str(self.folder / "key"),
            "headrace.network.seal-rows": "20",
            **{f"execution.state-recovery.{key}": value for key, value in recovery.items()},
        }.items():
            configuration.set_string(key, value)
        self._env.configure(configuration)
        self._env.set_parallelism(2)
        source = GatedSource(self.name, COUNT)
        sink = FileSink.for_row_format(
            str(self.folder / "target"), Encoder.simple_string_encoder()
        ).build()
        (
            self._env.from_source(source, WatermarkStrategy.no_watermarks(), "n", Types.INT())
            .uid("numbers")
            .key_by(lambda number: number % KEY_COUNT, key_type=Types.INT())
            .process(SlowCount(self.name, str(self.folder / "never")), output_type=PAIR)
            .uid("count")
            .map(lambda pair: f"{pair[0]} {pair[1]}", output_type=Types.STRING())
            .sink_to(sink)
            .uid("sink")
        )
        return self._env.execute_async(self.name)

    def cancelled_checkpoint(self) -> tuple[str, CheckpointMetadata]:
        """Run until a few checkpoints are complete, cancel; return the last one's place and metadata."""
        client = self.start()
        while client.get_job_details().result(WAIT_S).checkpoints.counts.completed < 3:
            self.tap.let_if_empty(2)
        client.cancel().result(WAIT_S)
        self.tap.let(10 * COUNT)
        with pytest.raises(JobCancelledError):
            client.get_job_execution_result().result(WAIT_S)
        key = metadata_key(Settings({"headrace.checkpoint.key-file": str(self.folder / "key")}))
        folders = find_snapshots(str(self.folder / "checkpoints"))
        inspected = [inspect_snapshot(one, key) for one in folders]
        whole = [one for one in inspected if one.condition is SnapshotCondition.COMPLETE]
        assert whole[-1].metadata is not None
        return whole[-1].uri, whole[-1].metadata

    def finish(self, **recovery: str) -> Counter[str]:
        client = self.start(**recovery)
        self.tap.let(10 * COUNT)
        client.get_job_execution_result().result(WAIT_S)
        return committed_lines(self.folder / "target")


@pytest.mark.parametrize("is_left_out", [True, False])
def test_records_in_flight_are_left_out_of_the_checkpoint_that_is_named_and_of_no_other(
    env: StreamExecutionEnvironment, tmp_path: Path, is_left_out: bool
) -> None:
    program = _Program(env, tmp_path)
    path, metadata = program.cancelled_checkpoint()
    in_flight = sum(
        chunk.row_count
        for operator in metadata.operators
        for state in operator.subtasks.values()
        for chunk in state.chunks
        if chunk.table is StateTable.CHANNELS
    )
    assert 0 < in_flight < COUNT
    named = metadata.checkpoint_id if is_left_out else metadata.checkpoint_id + 1
    found = program.finish(
        **{"path": path, "without-channel-state.checkpoint-id": str(named)},
    )
    assert set(found.values()) == {1}
    assert found.total() == COUNT - (in_flight if is_left_out else 0)
    per_key = Counter(line.split()[0] for line in found)
    assert set(found) == {
        f"{key} {n}" for key, total in per_key.items() for n in range(1, total + 1)
    }
