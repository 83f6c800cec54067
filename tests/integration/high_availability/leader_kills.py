"""Kills of leaders at each step of a job's life, beside a standby that goes on, and a ZooKeeper that is away.

What comes of each is judged.

`make chaos PART=leaders` does all of it again and again, for the page of the chaos suite; the tests do each step
once.
"""

import argparse
import enum
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from headrace.core.process.failpoints import Failpoint
from testkit.waiting import wait_until
from tests.integration.high_availability.drivers import (
    RATE,
    DriverProcess,
    NumbersJob,
    Rivals,
    rivals,
)
from tests.integration.high_availability.zookeeper_server import zookeeper_server

_TASK_COUNT: Final = 2
_PADDING_BYTES: Final = 200_000
_WITHOUT_PAUSE_S: Final = 60.0
_AWAY_S: Final = 30
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


@dataclass(frozen=True)
class Outcome:
    """What came of one run.

    `failover_s`: from the kill, or from ZooKeeper's return, until all tasks run, or until the next one leads; 0 where
    the job went on without a restart.
    """

    what: str
    failover_s: float
    mistakes: tuple[str, ...] = ()
    bound_s: float = 12.0
    kill_count: int = 1
    note: str = ""

    def judged(self) -> "Outcome":
        """Return the outcome with a late failover as a mistake; a busy machine is no excuse here."""
        if self.failover_s <= self.bound_s:
            return self
        late = f"it took {self.failover_s:.1f} s, and {self.bound_s:g} s are the bound"
        return replace(self, mistakes=(*self.mistakes, late))

    def line(
        self, group: str, repeat: int, duration_s: float, load_average: float
    ) -> dict[str, Any]:
        """Return the run as the chaos suite keeps runs."""
        load = f"load average {load_average:.1f} before"
        return {
            "group": group,
            "scenario": self.what,
            "repeat": repeat,
            "duration_s": round(duration_s, 1),
            "disturbance_count": self.kill_count,
            "recoveries_s": [round(self.failover_s, 4)] if self.failover_s else [],
            "note": f"{self.note}; {load}" if self.note else load,
            "mistakes": list(self.mistakes),
        }


def slack_s() -> float:
    """Return the seconds over a bound that are granted a machine which does much else: none where it does not."""
    return 0.0 if os.getloadavg()[0] <= (os.cpu_count() or 1) else 30.0


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


def kill_with_task_manager(folder: Path) -> Outcome:
    """Kill a TaskManager and the leader at once."""
    with rivals(folder) as pair:
        job = NumbersJob(folder, count=6_000, parallelism=_TASK_COUNT)
        first, second = _leader_and_standby(pair, job)
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
        leader, standby = _leader_and_standby(pair, job)
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
        first.await_log("this process stands by")
        return Outcome(
            "a frozen leader goes on behind its successor",
            running["at"] - frozen_s,
            _end(second, pair, job),
        )


def tolerate_zookeeper_away(folder: Path) -> Outcome:
    """Kill ZooKeeper for half a minute, which the leader tolerates: it and its job go on meanwhile."""
    with zookeeper_server(folder / "zookeeper") as server, rivals(folder) as pair:
        job = NumbersJob(folder, count=45_000, parallelism=_TASK_COUNT)
        options = server.options(session="90 s", tolerates=True)
        first, second = _leader_and_standby(pair, job, options)
        server.stop()
        first.await_log("no connection to ZooKeeper")
        lines_after = sum(job.output().values()) + _AWAY_S * RATE
        # So many rows take as long at least.
        wait_until(lambda: sum(job.output().values()) >= lines_after, 120, "output all the while")
        server.start()
        mistakes = _end(first, pair, job)
        if second.find("leads") is not None:
            mistakes = (*mistakes, "the standby led although the leader had gone on")
        return Outcome("ZooKeeper is away for 30 s, and that is tolerated", 0.0, mistakes)


def leave_when_zookeeper_is_away(folder: Path) -> Outcome:
    """Kill ZooKeeper for half a minute, which the leader does not tolerate: whoever leads then goes on with the job."""
    with zookeeper_server(folder / "zookeeper") as server, rivals(folder) as pair:
        job = NumbersJob(folder, count=6_000, parallelism=_TASK_COUNT)
        first, second = _leader_and_standby(pair, job, server.options())
        stopped_s = time.monotonic()
        server.stop()
        first.await_log("this process stands by")
        newest = pair.newest_checkpoint(job)
        wait_until(lambda: time.monotonic() - stopped_s > _AWAY_S, 60, "half a minute")
        returns_s = time.monotonic()
        server.start()
        wait_until(
            lambda: second.find("leads") is not None or "(epoch 2)" in first.log, 120, "a leader"
        )
        next_one = first if second.find("leads") is None else second
        running = _await_running(next_one, job)
        mistakes = _end(next_one, pair, job)
        if running["restored"] != newest:
            mistakes = (
                *mistakes,
                f"restored from {running['restored']}, while {newest} was the newest",
            )
        return Outcome(
            "ZooKeeper is away for 30 s, and the leader leaves",
            running["at"] - returns_s,
            mistakes,
        )


def _leader_and_standby(
    pair: Rivals, job: NumbersJob, options: Mapping[str, str] | None = None
) -> tuple[DriverProcess, DriverProcess]:
    pair.watch_pointers(job)
    first = pair.start("first", **(options or {}))
    first.wait_for("leads")
    second = pair.start("second", **(options or {}))
    first.say("submit", str(job.file))
    first.wait_for("submitted")
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
    driver.say("running", str(job.job_id))
    return driver.wait_for("running")


def _end(driver: DriverProcess, pair: Rivals, job: NumbersJob) -> tuple[str, ...]:
    """Wait for the job's end, and return what is wrong with it."""
    driver.say("result", str(job.job_id))
    result = driver.wait_for("result")
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
    ("task-manager", kill_with_task_manager),
    ("without-pause", kill_without_pause),
    ("frozen", freeze_past_lease),
    ("zookeeper-tolerated", tolerate_zookeeper_away),
    ("zookeeper-left", leave_when_zookeeper_is_away),
)


def run_all(
    runs: Iterable[tuple[str, Callable[[Path], Outcome]]], group: str, description: str
) -> int:
    """Do runs as the command line asks for; 1 where something is wrong."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", default="", help="runs whose name contains this")
    parser.add_argument("--json", type=Path, help="append outcomes to this file, a line each")
    options = parser.parse_args()
    mistakes = 0
    for name, run in runs:
        if options.only not in name:
            continue
        for repeat in range(options.repeats):
            load = os.getloadavg()[0]
            begun_s = time.monotonic()
            with tempfile.TemporaryDirectory(prefix="headrace-leaders-") as folder:
                try:
                    outcome = run(Path(folder)).judged()
                except AssertionError as error:
                    # The others are of interest all the same.
                    outcome = Outcome(name, 0.0, (str(error),))
            mistakes += len(outcome.mistakes)
            line = outcome.line(group, repeat, time.monotonic() - begun_s, load)
            print(
                f"{outcome.what} #{repeat}: {outcome.failover_s:.1f} s {line['mistakes']} ({line['note']})",
                flush=True,
            )
            if options.json:
                with options.json.open("a") as file:
                    file.write(json.dumps(line) + "\n")
    return 1 if mistakes else 0


if __name__ == "__main__":
    raise SystemExit(run_all(RUNS, "leaders", "Kill leaders at each step of a job."))
