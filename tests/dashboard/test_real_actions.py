"""Buttons that steer a job, pressed before a real one: what each did is looked up at the job itself."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from headrace.core.errors import JobCancelledError
from headrace.core.lifecycle import JobStatus
from headrace.rest.client import RestClient
from headrace.testing.minicluster_executor import MiniClusterExecutor
from testkit.waiting import wait_until
from tests.dashboard.watched_page import WatchedPage
from tests.integration.rest.counting_program import Program, await_running

pytestmark = pytest.mark.browser

SETTINGS = {
    "rest.enabled": "true",
    "rest.port": "0",
    "rest.authentication": "none",
    "web.refresh-interval": "500 ms",
}
NUMBERS = 40
PER_KEY = {key: NUMBERS // 4 for key in range(4)}
"""How often each key has been seen after so many numbers."""


@pytest.fixture
def executor() -> Iterator[MiniClusterExecutor]:
    with MiniClusterExecutor(slot_count=2, settings=SETTINGS) as found:
        yield found


def counts_of(program: Program) -> dict[int, int]:
    """Return the state of a running job: how often it has seen each key."""
    rows = program.client.state().live("count", "count").rows.to_pylist()
    return {row["key"]: row["value"] for row in rows}


def start(name: str, executor: MiniClusterExecutor, folder: Path, path: str = "") -> Program:
    """Start the program, from a savepoint if one is given, and wait until all of it runs."""
    settings = {"execution.state-recovery.path": path} if path else {}
    program = Program(name, folder, settings=settings)
    await_running(RestClient(executor.rest_address, ""), program.job)
    return program


def count(program: Program) -> None:
    """Let the numbers through, and wait until they are counted."""
    program.gate.open_to(NUMBERS)
    wait_until(lambda: counts_of(program) == PER_KEY, what="all numbers are counted")


def press(
    page: Page, name: str, folder: Path | None = None, savepoint_format: str = "canonical"
) -> None:
    """Press a button, and say yes to its question, which offers canonical savepoints first."""
    page.get_by_role("button", name=name, exact=True).click()
    dialog = page.get_by_role("dialog")
    if folder is not None:
        dialog.get_by_label("Folder").fill(str(folder))
        expect(dialog.get_by_role("radio", name="canonical: ")).to_be_checked()
        dialog.get_by_role("radio", name=f"{savepoint_format}: ").check()
    dialog.get_by_role("button", name=name, exact=True).click()


def told_path(page: Page, folder: Path) -> Path:
    """Return the savepoint that the page says is there, which is the only one in its folder."""
    expect(page.locator(".notice.done")).to_contain_text("It is in file:")
    (found,) = folder.iterdir()
    expect(page.locator(".notice.done")).to_contain_text(f"It is in file:{found}")
    return found


def test_checkpoint_now_completes_one_more_checkpoint(
    executor: MiniClusterExecutor, watched: WatchedPage, tmp_path: Path
) -> None:
    program = start("checkpoint in a browser", executor, tmp_path)
    rest, path = RestClient(executor.rest_address, ""), f"{program.job}/checkpoints"
    assert rest.get(path)["counts"]["completed"] == 0, "the next one is due in an hour"
    watched.open(executor.rest_address, f"{program.job.replace('jobs', 'job')}/overview")
    watched.page.get_by_role("button", name="Checkpoint now").click()
    expect(watched.page.locator(".notice.done")).to_contain_text("Checkpoint 1 is complete.")
    wait_until(lambda: rest.get(path)["counts"]["completed"] == 1)
    (one,) = rest.get(path)["history"]
    assert (one["id"], one["status"], one["is_savepoint"]) == (1, "COMPLETED", False)
    assert Path(one["external_path"].removeprefix("file:"), "_metadata").is_file()
    assert program.client.get_job_status().result(30) is JobStatus.RUNNING
    assert watched.problems == []
    program.client.cancel().result(30)


def test_a_savepoint_is_taken_and_the_job_cancelled_and_another_one_goes_on_from_there(
    executor: MiniClusterExecutor, watched: WatchedPage, tmp_path: Path
) -> None:
    program = start("savepoint in a browser", executor, tmp_path)
    count(program)
    page = watched.page
    watched.open(executor.rest_address, f"{program.job.replace('jobs', 'job')}/overview")
    press(page, "Savepoint", tmp_path / "savepoints")
    savepoint = told_path(page, tmp_path / "savepoints")
    assert program.client.get_job_status().result(30) is JobStatus.RUNNING
    expect(page.locator(".job-head .state")).to_have_text("RUNNING")
    press(page, "Cancel")
    expect(page.locator(".job-head .state")).to_have_text("CANCELED")
    assert program.client.get_job_status().result(30) is JobStatus.CANCELED
    with pytest.raises(JobCancelledError):
        program.client.get_job_execution_result().result(30)
    rest = RestClient(executor.rest_address, "")
    assert rest.get(f"{program.job}/status")["status"] == "CANCELED"
    expect(page.get_by_role("button", name="Cancel", exact=True)).to_have_count(0)
    second = start("on from the savepoint", executor, tmp_path, str(savepoint))
    assert counts_of(second) == PER_KEY
    second.client.cancel().result(30)
    assert watched.problems == []


def test_a_native_savepoint_is_taken_and_shown_as_such(
    executor: MiniClusterExecutor, watched: WatchedPage, tmp_path: Path
) -> None:
    program = start("native savepoint in a browser", executor, tmp_path)
    page = watched.page
    watched.open(executor.rest_address, f"{program.job.replace('jobs', 'job')}/checkpoints")
    press(page, "Savepoint", tmp_path / "savepoints", "native")
    told_path(page, tmp_path / "savepoints")
    rest = RestClient(executor.rest_address, "")
    (one,) = rest.get(f"{program.job}/checkpoints")["history"]
    assert (one["checkpoint_type"], one["savepointFormat"]) == ("SAVEPOINT", "NATIVE")
    expect(page.get_by_role("link", name="savepoint, native 1, completed")).to_be_visible()
    expect(page.get_by_role("cell", name="savepoint, native")).to_be_visible()
    details = page.get_by_role("region", name="Savepoint 1")
    expect(details.locator(".facts div", has_text="kind")).to_have_text("kindsavepoint, native")
    assert watched.problems == []
    program.client.cancel().result(30)


def test_a_job_is_stopped_with_a_savepoint_and_goes_on_from_there(
    executor: MiniClusterExecutor, watched: WatchedPage, tmp_path: Path
) -> None:
    program = start("stop in a browser", executor, tmp_path)
    count(program)
    page = watched.page
    watched.open(executor.rest_address, f"{program.job.replace('jobs', 'job')}/overview")
    press(page, "Stop with savepoint", tmp_path / "savepoints")
    savepoint = told_path(page, tmp_path / "savepoints")
    expect(page.locator(".job-head .state")).to_have_text("FINISHED")
    assert program.client.get_job_status().result(30) is JobStatus.FINISHED
    second = start("on from the stop", executor, tmp_path, str(savepoint))
    assert counts_of(second) == PER_KEY
    statistics = RestClient(executor.rest_address, "").get(f"{second.job}/checkpoints")
    restored = statistics["latest"]["restored"]
    assert restored["external_path"].removeprefix("file:") == str(savepoint)
    second.client.cancel().result(30)
    assert watched.problems == []
