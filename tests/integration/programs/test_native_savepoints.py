"""Programs that take native savepoints, and go on from them: in RocksDB's own files, which belong to nobody else."""

import shutil
from pathlib import Path

import pytest

from headrace import StreamExecutionEnvironment
from headrace.checkpoint.handles import StateTable
from headrace.checkpoint.metadata import CompletedCheckpoint, OperatorSnapshot
from headrace.checkpoint.retention.cleaner import dispose_savepoint
from headrace.checkpoint.storage.checkpoint_storage import load_snapshot
from headrace.core.barriers import SavepointFormatType, SnapshotKind
from headrace.core.config import Settings
from headrace.core.errors import JobExecutionError
from headrace.state_processor.errors import NativeStateError
from headrace.state_processor.savepoint_editor import SavepointEditor
from headrace.state_processor.verification import unsound_files
from testkit.waiting import wait_until
from tests.integration.programs.job_details import await_begun, await_details
from tests.integration.programs.recovery_program import (
    COUNT,
    EVERY_50_MS,
    HOURLY,
    WAIT_S,
    Program,
    expected,
    has_read,
)

pytestmark = pytest.mark.integration

CANONICAL, NATIVE = SavepointFormatType.CANONICAL, SavepointFormatType.NATIVE
FIRST = 300
PATH = "execution.state-recovery.path"


class SavedProgram(Program):
    """A program whose state is in files, however small; `options` are those of all its runs."""

    def __init__(self, env: StreamExecutionEnvironment, folder: Path, name: str) -> None:
        super().__init__(env, folder, name)
        self.target = folder / "written"
        self.options = {
            "execution.checkpointing.dir": str(folder / "checkpoints"),
            "execution.checkpointing.data-inline-threshold": "0",
            "execution.checkpointing.incremental": "true",
            "headrace.checkpoint.key-file": str(folder / "key"),
            "state.backend.type": "rocksdb",
        }
        self.settings = Settings(self.options)
        self.savepoints = folder / "savepoints"

    def stop(self, options: dict[str, str], format_type: SavepointFormatType = NATIVE) -> Path:
        """Count the first numbers, and stop with a savepoint; return its folder."""
        client = self.configure(self.options | options).start(count=None)
        self.gate.open_to(FIRST)
        await_begun(client, has_read(0 if PATH in options else FIRST))
        if options.items() >= EVERY_50_MS.items():
            await_details(client, lambda details: details.checkpoints.counts.completed > 2)
        path = client.stop_with_savepoint(False, str(self.savepoints), format_type).result(WAIT_S)
        return Path(path)

    def load(self, folder: Path) -> CompletedCheckpoint:
        return load_snapshot(str(folder), self.settings)


@pytest.fixture
def program(
    env: StreamExecutionEnvironment, tmp_path: Path, request: pytest.FixtureRequest
) -> SavedProgram:
    return SavedProgram(env, tmp_path, f"native {request.node.name}")


def _counting(snapshot: CompletedCheckpoint) -> OperatorSnapshot:
    (operator,) = [one for one in snapshot.metadata.operators if one.uid == "count"]
    return operator


def _keyed_tables(snapshot: CompletedCheckpoint) -> set[StateTable]:
    operator = _counting(snapshot)
    states = operator.subtasks.values()
    tables = {chunk.table for state in states for chunk in state.chunks}
    return tables & {StateTable.NATIVE, StateTable.KEYED}


@pytest.mark.parametrize(
    ("backend", "incremental", "parallelism"),
    [("rocksdb", "true", 2), ("rocksdb", "false", 1), ("hashmap", "false", 1)],
)
def test_a_program_goes_on_from_a_native_savepoint_that_is_all_there_is_of_it(
    program: SavedProgram, backend: str, incremental: str, parallelism: int
) -> None:
    program.options |= {
        "state.backend.type": backend,
        "execution.checkpointing.incremental": incremental,
    }
    folder = program.stop(EVERY_50_MS)
    snapshot = program.load(folder)
    assert snapshot.metadata.kind is SnapshotKind.NATIVE_SAVEPOINT_SUSPEND
    kept_as = StateTable.NATIVE if backend == "rocksdb" else StateTable.KEYED
    assert _keyed_tables(snapshot) == {kept_as}
    # RocksDB's own files do not tell how many rows there are.
    assert (_counting(snapshot).row_count is None) == (backend == "rocksdb")
    files = [file.uri for file in snapshot.metadata.files() if file.uri]
    assert files
    assert all(uri.startswith(f"{snapshot.uri}/") for uri in files)
    shutil.rmtree(program.folder / "checkpoints")
    moved = folder.rename(program.folder / "moved")
    assert not list(unsound_files(program.load(moved).metadata))
    following = program.configure(program.options | HOURLY | {PATH: str(moved)})
    client = following.start(parallelism=parallelism)
    program.gate.open_to(COUNT)
    client.get_job_execution_result().result(WAIT_S)
    assert program.written() == expected()


def test_a_native_savepoint_of_a_job_that_goes_on_may_be_deleted(program: SavedProgram) -> None:
    client = program.configure(program.options | EVERY_50_MS).start(fails_at=60)
    program.gate.open_to(FIRST)
    await_begun(client, has_read(FIRST))
    path = client.trigger_savepoint(str(program.savepoints), NATIVE).result(WAIT_S)
    assert _keyed_tables(program.load(Path(path))) == {StateTable.NATIVE}
    dispose_savepoint(path, program.settings)
    assert not any(program.savepoints.iterdir())
    completed = client.get_job_details().result(WAIT_S).checkpoints.counts.completed
    await_details(client, lambda details: details.checkpoints.counts.completed > completed + 2)
    program.gate.open_to(COUNT)
    client.get_job_execution_result().result(WAIT_S)
    assert client.get_job_details().result(WAIT_S).checkpoints.counts.restored == 1
    assert program.written() == expected()


def test_a_claimed_native_savepoint_goes_with_the_checkpoints_behind_it(
    program: SavedProgram,
) -> None:
    folder = program.stop(HOURLY)
    claimed = {PATH: str(folder), "execution.state-recovery.claim-mode": "CLAIM"}
    client = program.configure(program.options | EVERY_50_MS | claimed).start(fails_at=60)
    wait_until(lambda: not folder.exists(), WAIT_S, "the savepoint is deleted")
    program.gate.open_to(COUNT)
    client.get_job_execution_result().result(WAIT_S)
    assert client.get_job_details().result(WAIT_S).checkpoints.counts.restored == 2
    assert program.written() == expected()


def test_a_native_savepoint_is_for_its_own_backend_and_a_canonical_one_behind_it_for_all(
    program: SavedProgram,
) -> None:
    folder = program.stop(HOURLY)
    with pytest.raises(NativeStateError, match="take a canonical savepoint"):
        SavepointEditor(program.load(folder), program.settings).remove("count").write(
            str(program.folder / "edited"), reason="to see it refused"
        )
    heap = {"state.backend.type": "hashmap"}
    refused = program.configure(program.options | HOURLY | heap | {PATH: str(folder)}).start()
    with pytest.raises(JobExecutionError, match="restore a canonical savepoint taken with it"):
        refused.get_job_execution_result().result(WAIT_S)
    canonical = program.stop(
        HOURLY | {"state.backend.type": "rocksdb", PATH: str(folder)}, CANONICAL
    )
    assert _keyed_tables(program.load(canonical)) == {StateTable.KEYED}
    client = program.configure(program.options | HOURLY | heap | {PATH: str(canonical)}).start()
    program.gate.open_to(COUNT)
    client.get_job_execution_result().result(WAIT_S)
    assert program.written() == expected()
