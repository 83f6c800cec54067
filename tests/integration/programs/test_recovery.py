"""Programs that fail in the middle, stop with a savepoint or end, on a cluster that takes checkpoints.

Whatever happens, the output is the one of a run in which nothing did.
"""

from collections import Counter
from pathlib import Path

import pytest

from headrace import StreamExecutionEnvironment
from headrace.core.errors import HeadraceError, JobExecutionError
from headrace.core.lifecycle import JobStatus
from tests.integration.programs.job_details import await_begun, await_details, every_task_runs
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


@pytest.fixture
def program(
    env: StreamExecutionEnvironment, tmp_path: Path, request: pytest.FixtureRequest
) -> Program:
    return Program(env, tmp_path, request.node.name)


@pytest.mark.parametrize("unaligned", ["false", "true"])
def test_a_program_that_fails_in_the_middle_writes_every_row_once(
    program: Program, unaligned: str
) -> None:
    unaligned_options = {"execution.checkpointing.unaligned.enabled": unaligned}
    client = program.configure(EVERY_50_MS | unaligned_options).start(fails_at=60)
    program.gate.open_to(300)
    await_details(client, lambda details: details.checkpoints.counts.completed > 0)
    program.gate.open_to(COUNT)
    client.get_job_execution_result().result(WAIT_S)
    details = client.get_job_details().result(WAIT_S)
    assert details.checkpoints.counts.restored == 1 and details.checkpoints.restored_id
    assert [entry.root.error.class_name for entry in details.exceptions] == ["UserCodeError"]
    assert program.written() == expected()


def test_checkpoints_in_files_are_kept_as_many_as_wanted_and_go_with_the_job(
    program: Program,
) -> None:
    folder = program.folder / "checkpoints"
    options = {
        "execution.checkpointing.dir": str(folder),
        "execution.checkpointing.num-retained": "2",
        "headrace.checkpoint.key-file": str(program.folder / "key"),
    }
    client = program.configure(EVERY_50_MS | options).start(fails_at=60)
    program.gate.open_to(COUNT // 2)
    await_details(client, lambda details: details.checkpoints.counts.completed > 4)
    program.gate.open_to(COUNT)
    client.get_job_execution_result().result(WAIT_S)
    assert program.written() == expected()
    assert client.get_job_details().result(WAIT_S).checkpoints.counts.restored == 1
    assert list(folder.glob("*/chk-*")) == [], "they go with a job that is FINISHED"


def test_a_program_that_ends_commits_its_last_rows_at_once_and_before_it_is_finished(
    program: Program,
) -> None:
    client = program.configure(HOURLY).start()
    program.gate.open_to(COUNT)
    client.get_job_execution_result().result(WAIT_S)
    assert program.written() == expected()
    details = client.get_job_details().result(WAIT_S)
    assert details.checkpoints.counts.completed == 1, "the final one, an hour early"


def test_a_program_that_stops_with_a_savepoint_goes_on_from_it_as_if_it_had_not(
    program: Program,
) -> None:
    client = program.configure(HOURLY).start(count=None)
    program.gate.open_to(300)
    await_begun(client, has_read(300))
    path = client.stop_with_savepoint(False, str(program.folder / "savepoints")).result(WAIT_S)
    assert client.get_job_status().result(WAIT_S) is JobStatus.FINISHED
    assert program.written() == expected(300), "all output is committed when the call returns"
    following = program.configure({"execution.state-recovery.path": path}).start()
    program.gate.open_to(COUNT)
    following.get_job_execution_result().result(WAIT_S)
    assert program.written() == expected()


def test_a_checkpoint_that_somebody_asks_for_commits_what_came_before_it(program: Program) -> None:
    client = program.configure(HOURLY).start(count=None)
    program.gate.open_to(300)
    await_begun(client, has_read(300))
    asked_for = client.trigger_checkpoint().result(WAIT_S)
    details = await_details(client, lambda _: program.written() == expected(300))
    latest = details.checkpoints.latest_completed
    assert latest is not None and latest.checkpoint_id == asked_for
    client.cancel().result(WAIT_S)


def test_a_savepoint_leaves_the_job_running(program: Program) -> None:
    client = program.configure(HOURLY).start()
    program.gate.open_to(300)
    await_begun(client, has_read(300))
    path = client.trigger_savepoint(str(program.folder / "savepoints")).result(WAIT_S)
    assert Path(path.removeprefix("file://")).is_dir()
    assert program.written() == Counter(), "it commits nothing"
    program.gate.open_to(COUNT)
    client.get_job_execution_result().result(WAIT_S)
    assert program.written() == expected()
    savepoint = client.get_job_details().result(WAIT_S).checkpoints.latest_savepoint
    assert savepoint is not None and savepoint.uri == path


def test_nothing_goes_on_from_a_savepoint_behind_the_end_of_event_time(program: Program) -> None:
    client = program.configure(HOURLY).start(count=None)
    program.gate.open_to(100)
    await_begun(client, has_read(100))
    path = client.stop_with_savepoint(True, str(program.folder / "savepoints")).result(WAIT_S)
    assert program.written() == expected(100)
    following = program.configure({"execution.state-recovery.path": path}).start()
    with pytest.raises(JobExecutionError, match=r"taken with --drain: its job has ended its input"):
        following.get_job_execution_result().result(WAIT_S)


def test_a_savepoint_without_a_place_is_refused_with_the_option_to_set(program: Program) -> None:
    client = program.configure(HOURLY).start(count=None)
    await_details(client, every_task_runs)
    with pytest.raises(HeadraceError, match=r"execution\.checkpointing\.savepoint-dir"):
        client.trigger_savepoint().result(WAIT_S)
    client.cancel().result(WAIT_S)
