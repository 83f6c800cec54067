"""Kills of leaders at each step of a job's life, beside a standby that goes on, and a ZooKeeper that is away.

What comes of each is judged.

`make chaos PART=leaders` does all of it again and again, for the page of the chaos suite; the tests do each step
once.
"""

import contextlib
import enum
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from headrace.cluster.high_availability.options import FILES, KUBERNETES, ZOOKEEPER
from headrace.core.process.failpoints import Failpoint
from testkit.kubernetes_api import kubernetes_api
from testkit.waiting import wait_until
from tests.integration.high_availability.drivers import (
    INCREMENTS,
    RATE,
    DriverProcess,
    NumbersJob,
    Rivals,
    rivals,
)
from tests.integration.high_availability.kubernetes_terms import (
    kubernetes_options,
    manifest_terms,
)
from tests.integration.high_availability.outcomes import Outcome, run_all
from tests.integration.high_availability.zookeeper_server import zookeeper_server

_TASK_COUNT: Final = 2
_PADDING_BYTES: Final = 200_000
_WITHOUT_PAUSE_S: Final = 60.0
_AWAY_S: Final = 30
_BUSY_RATE: Final = 5_000.0
_LAST_STEPS: Final = (Failpoint.JOB_ENDED, Failpoint.RESULT_STORED)


class Step(enum.Enum):
    """Steps at which a leader dies, with the failpoint and the number of the time at which it does.

    Each checkpoint has a call to each of the two tasks: an odd number is the call to the first of them. The second time
    is early enough for a slow machine, on which the job has few checkpoints before it ends.
    """

    ACCEPTED = ("the job is accepted, not stored", Failpoint.JOB_ACCEPTED, 1)
    STORED = ("the job is stored", Failpoint.JOB_STORED, 1)
    TRIGGERED = ("a checkpoint is triggered at one of two tasks", Failpoint.TRIGGERED, 3)
    ACKNOWLEDGED = ("all tasks have acknowledged, no metadata", Failpoint.PUBLISHING, 2)
    METADATA = ("metadata written, pointer not", Failpoint.METADATA_WRITTEN, 2)
    PUBLISHED = ("pointer written, nobody told", Failpoint.CHECKPOINT_PUBLISHED, 2)
    NOTIFYING = ("one of two tasks is told", Failpoint.NOTIFYING, 3)
    COMMITTING = ("half of the files of a checkpoint are committed", Failpoint.COMMIT_HALF, 2)
    DELETING = ("an old checkpoint is half deleted", Failpoint.DELETING, 2)
    ENDED = ("the job has ended, its result is not stored", Failpoint.JOB_ENDED, 1)
    RESULT = ("the result is stored, nothing cleaned up", Failpoint.RESULT_STORED, 1)

    @property
    def text(self) -> str:
        return self.value[0]

    @property
    def failpoint(self) -> Failpoint:
        return self.value[1]

    @property
    def arming(self) -> str:
        return f"{self.failpoint.value}#{self.value[2]}=kill"


def kill_at(step: Step, folder: Path, store_uri: str = "") -> Outcome:
    """Kill the leader at a step; the standby goes on."""
    with rivals(folder, store_uri) as pair:
        job = NumbersJob(folder, padding=_PADDING_BYTES, count=3_000, parallelism=_TASK_COUNT)
        pair.watch_pointers(job)
        first = pair.start("first", failpoints=step.arming)
        first.wait_for("leads")
        second = pair.start("second")
        second.await_standby()
        first.say("submit", str(job.file))
        assert first.wait() == -9
        killed_s = time.monotonic()
        newest = pair.newest_checkpoint(job)
        led_s = second.wait_for("leads")["at"]
        mistakes: list[str] = []
        if step is Step.ACCEPTED:
            if first.find("submitted") is not None:
                mistakes.append("the client was told of a job that is not stored")
            # Its client, which has heard nothing, submits it again with the same id.
            second.say("submit", str(job.file))
        end_s = led_s
        if step.failpoint not in _LAST_STEPS:
            running = _await_running(second, job)
            end_s = running["at"]
            if running["restored"] != newest:
                mistakes.append(
                    f"restored from {running['restored']}, while the newest checkpoint was {newest}"
                )
        return Outcome(
            f"leader: {step.text}", end_s - killed_s, (*mistakes, *_end(second, pair, job))
        )


def kill_leader_of_another_host(kind: str, folder: Path) -> Outcome:
    """Kill the leader, whose end nobody can see but by its lease, with terms that docs/high_availability.md names.

    `kind`: where it is elected.
    """
    with contextlib.ExitStack() as servers:
        options: Mapping[str, str] = {}
        if kind == ZOOKEEPER:
            server = servers.enter_context(zookeeper_server(folder / "zookeeper"))
            options = server.options(session="8 s")
        elif kind == KUBERNETES:
            api = servers.enter_context(kubernetes_api())
            options = kubernetes_options(folder, api, lease="8 s") | manifest_terms()
        pair = servers.enter_context(rivals(folder))
        job = NumbersJob(folder, count=20_000, parallelism=_TASK_COUNT)
        first, second = _leader_and_standby(pair, (job,), options, is_elsewhere=True)
        first.kill()
        killed_s = time.monotonic()
        newest = pair.newest_checkpoint(job)
        led_s = second.wait_for("leads")["at"] - killed_s
        running = _await_running(second, job)
        mistakes = _end(second, pair, job)
        if running["restored"] != newest:
            mistakes = (
                *mistakes,
                f"restored from {running['restored']}, while {newest} was the newest",
            )
        return Outcome(
            f"leader of another host, elected by {kind}",
            running["at"] - killed_s,
            mistakes,
            note=f"the next one led after {led_s:.1f} s",
        )


def kill_with_task_manager(folder: Path) -> Outcome:
    """Kill a TaskManager and the leader at once."""
    with rivals(folder) as pair:
        job = NumbersJob(folder, count=6_000, parallelism=_TASK_COUNT)
        first, second = _leader_and_standby(pair, (job,))
        first.say("die-with-one")
        assert first.wait() == -9
        killed_s = time.monotonic()
        newest = pair.newest_checkpoint(job)
        running = _await_running(second, job)
        mistakes: list[str] = []
        if running["restored"] != newest:
            mistakes.append(f"restored from {running['restored']}, while {newest} was the newest")
        return Outcome(
            "leader and a TaskManager at once",
            running["at"] - killed_s,
            (*mistakes, *_end(second, pair, job)),
            kill_count=2,
        )


def kill_without_pause(folder: Path, duration_s: float = _WITHOUT_PAUSE_S) -> Outcome:
    """Kill whoever leads, as soon as it does, for so long; a standby waits always. Then nothing more happens."""
    with rivals(folder) as pair:
        job = NumbersJob(folder, count=6_000, parallelism=_TASK_COUNT)
        leader, standby = _leader_and_standby(pair, (job,))
        end_s = time.monotonic() + duration_s
        killed_count = 0
        while time.monotonic() < end_s:
            leader.kill()
            killed_count += 1
            killed_s = time.monotonic()
            leader, standby = _leader_first(standby, pair.start(f"standby-{killed_count}"))
        leader.kill()
        killed_s = time.monotonic()
        running = _await_running(standby, job)
        return Outcome(
            f"for {duration_s:g} s each leader as soon as it led",
            running["at"] - killed_s,
            _end(standby, pair, job),
            bound_s=15.0,
            kill_count=killed_count + 1,
        )


def freeze_past_lease(folder: Path) -> Outcome:
    """Freeze the leader before it writes metadata, for longer than its lease; it goes on behind its successor."""
    with rivals(folder) as pair:
        job = NumbersJob(folder, count=6_000, parallelism=_TASK_COUNT)
        pair.watch_pointers(job)
        first = pair.start("first", failpoints=f"{Failpoint.PUBLISHING.value}#2=stop")
        first.wait_for("leads")
        second = pair.start("second")
        second.await_standby()
        first.say("submit", str(job.file))
        wait_until(lambda: first.is_frozen, 120, "the leader is frozen")
        frozen_s = time.monotonic()
        running = _await_running(second, job)
        # The order of what one look finds is not known: the successor's checkpoint has to be seen first.
        pair.await_watched(job, after=pair.newest_checkpoint(job) or 0)
        first.go_on()
        first.await_log("this process is a standby")
        return Outcome(
            "a frozen leader goes on behind its successor",
            running["at"] - frozen_s,
            _end(second, pair, job),
        )


def tolerate_zookeeper_away(folder: Path) -> Outcome:
    """Kill ZooKeeper for half a minute, which the leader tolerates: it and its jobs go on meanwhile."""
    with zookeeper_server(folder / "zookeeper") as server, rivals(folder) as pair:
        busy, beside = _loaded_jobs(folder, duration_s=50)
        options = server.options(session="90 s", tolerates=True)
        first, second = _leader_and_standby(pair, (busy, beside), options)
        server.stop()
        first.await_log("no connection to ZooKeeper")
        busy_before = sum(busy.output().values())
        lines_after = sum(beside.output().values()) + _AWAY_S * beside.rate
        # So many rows take as long at least.
        wait_until(lambda: sum(beside.output().values()) >= lines_after, 180, "output meanwhile")
        busy_count = sum(busy.output().values()) - busy_before
        server.start()
        mistakes = (*_end(first, pair, busy), *_end(first, pair, beside))
        if busy_count < _AWAY_S * beside.rate:
            mistakes = (*mistakes, f"the busy job has written only {busy_count} rows meanwhile")
        if second.find("leads") is not None:
            mistakes = (*mistakes, "the standby led although the leader had gone on")
        return Outcome("ZooKeeper is away for 30 s, and that is tolerated", 0.0, mistakes)


def leave_when_zookeeper_is_away(folder: Path) -> Outcome:
    """Kill ZooKeeper for half a minute, which the leader does not tolerate: whoever leads then goes on."""
    with zookeeper_server(folder / "zookeeper") as server, rivals(folder) as pair:
        jobs = _loaded_jobs(folder, duration_s=15)
        first, second = _leader_and_standby(pair, jobs, server.options())
        stopped_s = time.monotonic()
        server.stop()
        first.await_log("this process is a standby")
        newest = {job: pair.newest_checkpoint(job) for job in jobs}
        wait_until(lambda: time.monotonic() - stopped_s > _AWAY_S, 60, "half a minute")
        returns_s = time.monotonic()
        server.start()
        wait_until(
            lambda: second.find("leads") is not None or "(epoch 2)" in first.log, 120, "a leader"
        )
        next_one = first if second.find("leads") is None else second
        running = {job: _await_running(next_one, job) for job in jobs}
        mistakes = [mistake for job in jobs for mistake in _end(next_one, pair, job)]
        mistakes += [
            f"restored from {running[job]['restored']}, while {newest[job]} was the newest"
            for job in jobs
            if running[job]["restored"] != newest[job]
        ]
        return Outcome(
            "ZooKeeper is away for 30 s, and the leader leaves",
            max(each["at"] for each in running.values()) - returns_s,
            tuple(mistakes),
        )


def _loaded_jobs(folder: Path, duration_s: int) -> tuple[NumbersJob, NumbersJob]:
    """Return two jobs of that duration: one of many rows with state by key, and one that is as all others here."""
    beside_folder = folder / "beside"
    beside_folder.mkdir()
    busy = NumbersJob(
        folder,
        count=int(duration_s * _BUSY_RATE),
        parallelism=_TASK_COUNT,
        settings=INCREMENTS,
        is_keyed=True,
        rate=_BUSY_RATE,
    )
    return busy, NumbersJob(beside_folder, count=int(duration_s * RATE), parallelism=_TASK_COUNT)


def _leader_and_standby(
    pair: Rivals,
    jobs: Sequence[NumbersJob],
    options: Mapping[str, str] | None = None,
    *,
    is_elsewhere: bool = False,
) -> tuple[DriverProcess, DriverProcess]:
    options = {"taskmanager.numberOfTaskSlots": str(len(jobs)), **(options or {})}
    first = pair.start("first", **options)
    first.wait_for("leads")
    second = pair.start("second", is_elsewhere=is_elsewhere, **options)
    for job in jobs:
        pair.watch_pointers(job)
        first.ask_for("submitted", "submit", str(job.file))
    for job in jobs:
        job.await_begin()
    second.await_standby()
    return first, second


def _leader_first(one: DriverProcess, other: DriverProcess) -> tuple[DriverProcess, DriverProcess]:
    """Wait until one of two drivers leads, and return it before the other.

    That is the one that has stood by for longer, but on a busy machine either may look first.
    """

    def leads() -> bool:
        assert one.is_alive and other.is_alive, f"{one.log[-4000:]}\n{other.log[-4000:]}"
        return any(driver.find("leads") for driver in (one, other))

    wait_until(leads, 120, f"{one.name} or {other.name} leads")
    return (one, other) if one.find("leads") else (other, one)


def _await_running(driver: DriverProcess, job: NumbersJob) -> dict[str, Any]:
    driver.wait_for("leads")
    return driver.ask("running", str(job.job_id))


def _end(driver: DriverProcess, pair: Rivals, job: NumbersJob) -> tuple[str, ...]:
    """Wait for the job's end, and return what is wrong with it."""
    result = driver.ask("result", str(job.job_id))
    mistakes: list[str] = []
    if result["status"] != "FINISHED":
        mistakes.append(f"the job is {result['status']}: {result['failure']}")
    output = job.output()
    for name, rows in (("lost", job.expected - output), ("repeated", output - job.expected)):
        if rows:
            mistakes.append(f"{rows.total()} rows were {name}")
    mistakes += pair.pointer_mistakes(job)
    pair.assert_forgotten(job)
    return tuple(mistakes)


RUNS: Final[tuple[tuple[str, Callable[[Path], Outcome]], ...]] = (
    *((step.name.lower(), lambda folder, step=step: kill_at(step, folder)) for step in Step),
    *(
        (f"another-host-{kind}", partial(kill_leader_of_another_host, kind))
        for kind in (FILES, ZOOKEEPER, KUBERNETES)
    ),
    ("task-manager", kill_with_task_manager),
    ("without-pause", kill_without_pause),
    ("frozen", freeze_past_lease),
    ("zookeeper-tolerated", tolerate_zookeeper_away),
    ("zookeeper-left", leave_when_zookeeper_is_away),
)


if __name__ == "__main__":
    raise SystemExit(run_all(RUNS, "leaders", "Kill leaders at each step of a job."))
