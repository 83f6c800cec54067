"""Programs with state in RocksDB: incremental checkpoints, failures, and savepoints that the heap goes on from."""

from pathlib import Path

import pytest

from headrace import StreamExecutionEnvironment
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

ROCKSDB = {"state.backend.type": "rocksdb"}


@pytest.fixture
def program(
    env: StreamExecutionEnvironment, tmp_path: Path, request: pytest.FixtureRequest
) -> Program:
    return Program(env, tmp_path, f"rocksdb {request.node.name}")


@pytest.mark.parametrize("incremental", ["true", "false"])
def test_a_program_that_fails_goes_on_from_its_checkpoint(
    program: Program, incremental: str
) -> None:
    local = program.folder / "local"
    local.mkdir()
    options = {
        "execution.checkpointing.dir": str(program.folder / "checkpoints"),
        "execution.checkpointing.incremental": incremental,
        "headrace.checkpoint.key-file": str(program.folder / "key"),
        "state.backend.rocksdb.localdir": str(local),
    }
    client = program.configure(EVERY_50_MS | ROCKSDB | options).start(fails_at=60)
    program.gate.open_to(COUNT // 2)
    await_details(client, lambda details: details.checkpoints.counts.completed > 3)
    assert any(local.iterdir()), "databases are where the option says"
    program.gate.open_to(COUNT)
    client.get_job_execution_result().result(WAIT_S)
    assert program.written() == expected()
    assert client.get_job_details().result(WAIT_S).checkpoints.counts.restored == 1


@pytest.mark.parametrize(("before", "after"), [("rocksdb", "hashmap"), ("hashmap", "rocksdb")])
def test_a_savepoint_changes_the_backend(program: Program, before: str, after: str) -> None:
    incremental = {"execution.checkpointing.incremental": "true"}
    options = HOURLY | incremental | {"state.backend.type": before}
    client = program.configure(options).start(count=None)
    program.gate.open_to(300)
    await_begun(client, has_read(300))
    path = client.stop_with_savepoint(False, str(program.folder / "savepoints")).result(WAIT_S)
    restore = {"execution.state-recovery.path": path, "state.backend.type": after}
    following = program.configure(restore).start()
    program.gate.open_to(COUNT)
    following.get_job_execution_result().result(WAIT_S)
    assert program.written() == expected()
