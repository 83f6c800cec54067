"""Runs other than kills: the job stopped with a savepoint, started from damaged checkpoints, fed with poison."""

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from headrace.core.errors import HeadraceError, JobCancelledError, JobExecutionError
from headrace.core.process.failpoints import FAILPOINTS, Failpoint
from headrace.functions.failures import NUM_RECORDS_FAILED
from testkit.chaos.digest_job import (
    DEAD_LETTERS,
    POISON_TEXT,
    DigestJob,
    PoisonPolicy,
    expected_dead_letters,
)
from testkit.chaos.events_job import EventsJob
from testkit.chaos.jobs import ChaosJob
from testkit.chaos.stage import Play, Stage, wait_until
from testkit.chaos.task_managers import kill_one
from testkit.exactly_once import compare_output, lines_of_files

_RECOVERY_PATH: Final = "execution.state-recovery.path"
_POISON_EVERY: Final = 97
_LATE_POISON: Final = 7_001
"""One number in this many is poison, so that there is time for commits before the first one."""
_STOPS_MAX_S: Final = 30.0


def run_through(stage: Stage) -> None:
    """Let the job run to its end."""
    stage.finish(stage.submit())


def stop_with_savepoint(stage: Stage) -> None:
    """Stop with a savepoint in the middle, with as many attempts as needed, and continue from it."""
    savepoint = _stop_in_the_middle(stage)
    stage.finish(stage.submit({_RECOVERY_PATH: savepoint}))


def rescale_from_savepoint(parallelism: int) -> Play:
    """Stop with a savepoint in the middle, and continue from it at another parallelism.

    Then a TaskManager is killed.
    """

    def play(stage: Stage) -> None:
        savepoint = _stop_in_the_middle(stage)
        stage.job = replace(_rescalable(stage.job), parallelism=parallelism)
        committed = stage.committed_count
        client = stage.submit({_RECOVERY_PATH: savepoint})
        wait_until(
            lambda: stage.committed_count > committed or stage.has_ended(client), "it commits again"
        )
        if not stage.has_ended(client) and kill_one(stage.generator):
            stage.leave_token()
        stage.finish(client)

    return play


def rescale_from_checkpoint(parallelism: int) -> Play:
    """Cancel in the middle and continue from the last checkpoint at another parallelism.

    A TaskManager dies at the restore.
    """

    def play(stage: Stage) -> None:
        checkpoint = _cancel_in_the_middle(stage)
        stage.job = replace(_rescalable(stage.job), parallelism=parallelism)
        failpoints = Path(stage.settings[FAILPOINTS.key].removeprefix("@"))
        failpoints.write_text(f"{Failpoint.RESTORE_HALF.value}=kill!{stage.directory / 'token'}")
        stage.finish(stage.submit({_RECOVERY_PATH: str(checkpoint)}))

    return play


def _rescalable(job: ChaosJob) -> EventsJob:
    # The digest job's readers assign keys by their index.
    assert isinstance(job, EventsJob), f"{job.name} has an answer for one parallelism only"
    return job


def _stop_in_the_middle(stage: Stage) -> str:
    """Stop the job in its middle and return the savepoint."""
    client = stage.submit()
    stage.wait_for_commits()
    savepoint, failed_count = "", 0
    deadline = time.monotonic() + _STOPS_MAX_S
    while not savepoint:
        try:
            future = client.stop_with_savepoint(False, str(stage.directory / "savepoints"))
            savepoint = future.result(stage.timeout_s)
        except HeadraceError:
            # A restarting job cannot be stopped yet; a job that ended in another way never can.
            failed_count += 1
            if stage.has_ended(client) or time.monotonic() > deadline:
                raise
            time.sleep(0.1)
    stage.note = f"stopped at attempt {failed_count + 1}"
    return savepoint


@dataclass(frozen=True)
class Damage:
    """Damage to every file of a checkpoint that `pattern` matches, done by `spoil`.

    `before_tasks`: it must be detected before any task is deployed; else before user code sees a record.
    """

    name: str
    pattern: str
    spoil: Callable[[Path], None]
    before_tasks: bool = True


def start_from_damaged(damage: Damage) -> Play:
    """Cancel the job in its middle, damage its last checkpoint, see it refused, repair it, and continue."""

    def play(stage: Stage) -> None:
        checkpoint = _cancel_in_the_middle(stage)
        files = sorted(checkpoint.glob(damage.pattern))
        assert files, f"nothing in {checkpoint} is called {damage.pattern}"
        whole = {file: file.read_bytes() for file in files}
        for file in files:
            damage.spoil(file)
        stage.note = _refusal_of(stage, checkpoint, damage)
        for file, content in whole.items():
            file.write_bytes(content)
        stage.finish(stage.submit({_RECOVERY_PATH: str(checkpoint)}))

    return play


def _cancel_in_the_middle(stage: Stage) -> Path:
    """Cancel the job in its middle and return its newest remaining checkpoint."""
    folder = stage.directory / "checkpoints"
    stage.settings = {
        **stage.settings,
        "execution.checkpointing.dir": str(folder),
        "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
    }
    client = stage.submit()
    stage.wait_for_commits()
    client.cancel().result(30)
    with contextlib.suppress(JobCancelledError):
        client.get_job_execution_result().result(stage.timeout_s)
    (newest,) = folder.glob("*/newest")
    return newest.parent / f"chk-{newest.read_text().strip()}"


def _refusal_of(stage: Stage, checkpoint: Path, damage: Damage) -> str:
    """Start from a damaged checkpoint and return the text about its refusal."""
    moment = Failpoint.TASK_RECEIVED if damage.before_tasks else Failpoint.USER_CODE
    reached = stage.directory / "reached"
    failpoints = Path(stage.settings[FAILPOINTS.key].removeprefix("@"))
    failpoints.write_text(f"{moment.value}=raise!{reached}")
    started = time.monotonic()
    try:
        client = stage.submit({_RECOVERY_PATH: str(checkpoint)})
        client.get_job_execution_result().result(stage.timeout_s)
    except JobExecutionError as error:
        refusal = str(error)
    else:
        raise AssertionError("the damage was not noticed: the job ran to its end")
    finally:
        failpoints.write_text("")
    assert not reached.exists(), f"{moment.value} was reached before the damage was noticed"
    assert checkpoint.name in refusal, f"the error does not say where the damage is: {refusal}"
    stage.leave_sign("refused")
    first_line = refusal.splitlines()[0].replace(str(checkpoint.parent), "…")
    return f"refused after {time.monotonic() - started:.1f} s: {first_line}"


def _turn_a_byte(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


def _cut_short(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-7])


DAMAGES: Final = (
    Damage("a byte of state is changed", "*keyed*", _turn_a_byte, before_tasks=False),
    Damage("state is cut short", "*keyed*", _cut_short),
    Damage("state is missing", "*keyed*", Path.unlink),
    Damage("a byte of the metadata is changed", "_metadata", _turn_a_byte),
    Damage("the metadata is cut short", "_metadata", _cut_short),
    Damage("the metadata is missing", "_metadata", Path.unlink),
)


def _poison(stage: Stage, every: int, policy: PoisonPolicy) -> DigestJob:
    assert isinstance(stage.job, DigestJob), f"{stage.job.name} knows no poison"
    stage.job = job = replace(stage.job, poison_every=every, policy=policy)
    return job


def poison_that_fails(stage: Stage) -> None:
    """Let the first poison record fail the job with a clear error; the output committed by then must be right."""
    _poison(stage, _LATE_POISON, PoisonPolicy.FAIL)
    stage.is_partial = True
    stage.settings = {**stage.settings, "restart-strategy.fixed-delay.attempts": "2"}
    client = stage.submit()
    try:
        stage.finish(client)
    except JobExecutionError as error:
        assert POISON_TEXT in str(error), f"another failure: {error}"
        stage.note = str(error).splitlines()[0]
    else:
        raise AssertionError("the job finished although it had to fail")
    stage.leave_sign("failed")


def poison_that_is_skipped(stage: Stage) -> None:
    """Skip and count every poison record."""
    job = _poison(stage, _POISON_EVERY, PoisonPolicy.SKIP)
    client = stage.submit()
    stage.finish(client)
    vertices = client.get_job_details().result(30).vertices
    metrics = [metric for vertex in vertices for metric in vertex.metrics.items()]
    counted = sum(value for name, value in metrics if name.endswith(NUM_RECORDS_FAILED))
    wanted = len(expected_dead_letters(job))
    assert counted == wanted, f"{counted:g} records were counted as failed, but {wanted} failed"
    stage.note = f"{wanted} records skipped and counted"
    stage.leave_sign("counted")


def poison_that_is_set_aside(stage: Stage) -> None:
    """Set aside every poison record once, although a TaskManager is killed meanwhile."""
    job = _poison(stage, _POISON_EVERY, PoisonPolicy.DEAD_LETTER)
    client = stage.submit()
    stage.wait_for_commits()
    if kill_one(stage.generator):
        stage.leave_token()
    stage.finish(client)
    letters = lines_of_files(stage.directory / DEAD_LETTERS)
    found = [line for lines in letters.values() for line in lines]
    wanted = expected_dead_letters(job)
    compare_output(wanted, found).check()
    stage.note = f"{len(wanted)} records set aside, each once"


POISON: Final[dict[str, Play]] = {
    "poison fails the job": poison_that_fails,
    "poison is skipped and counted": poison_that_is_skipped,
    "poison is set aside": poison_that_is_set_aside,
}
