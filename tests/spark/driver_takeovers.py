"""Kills of a session's driver on real Spark, after which its standby, or its supervisor alone, goes on with its job.

The job counts numbers by key, and writes each count into files once: what is there at its end must be that of one run.

`make chaos PART=takeovers` measures them again and again, for the page of the chaos suite; tests do the first two once.
"""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from headrace.rest.client import RestClient
from headrace.rest.client_errors import RestError
from headrace.rest.home.connections import connection_in
from testkit.exactly_once import lines_of_files
from testkit.waiting import wait_until
from tests.integration.high_availability.outcomes import Outcome, run_all
from tests.spark.commands import NO_UI, Commands, check_counts, counts_program
from tests.spark.processes import new_mark
from tests.spark.programs import Program
from tests.spark.standalone import StandaloneCluster

FAILOVER_S: Final = 12.0
WORKERS_END_S: Final = 15.0
_PATIENCE_S: Final = 180.0
_COUNT, _RATE = 6_000, 150


def highly_available(folder: Path) -> tuple[str, ...]:
    """Options of drivers that are one cluster."""
    settings = {
        "high-availability.type": "file",
        "high-availability.storageDir": str(folder / "ha"),
        "headrace.checkpoint.key-file": str(folder / "key"),
    }
    return tuple(word for key, value in settings.items() for word in ("-D", f"{key}={value}"))


def clusters_of(commands: Commands) -> dict[str, dict[str, Any]]:
    """Sessions and standbys by their names."""
    return {one["name"]: one for one in commands.answer("cluster", "list")["clusters"]}


def kill_beside_standby(folder: Path, started: list[Program]) -> Outcome:
    """Kill the leader; a standby on which Spark runs already goes on, and the supervisor brings the next standby."""
    return _kill(folder, started, "the driver, beside a standby on Spark", "second")


def kill_beside_supervisor(folder: Path, started: list[Program], count: int = _COUNT) -> Outcome:
    """Kill the only driver; its supervisor starts it again, with a Spark of its own. The job counts to `count`."""
    what = "the driver, which its supervisor starts again"
    return _kill(folder, started, what, "first", count=count)


def kill_on_standalone_cluster(folder: Path, started: list[Program]) -> Outcome:
    """Kill the only driver of a standalone cluster, whose executors are processes beside it."""
    what = "the driver on a standalone cluster, which its supervisor starts again"
    cluster = StandaloneCluster(folder / "standalone", new_mark())
    try:
        return _kill(folder, started, what, "first", cluster)
    finally:
        cluster.end()


def _kill(
    folder: Path,
    started: list[Program],
    what: str,
    follower: str,
    cluster: StandaloneCluster | None = None,
    count: int = _COUNT,
) -> Outcome:
    commands = Commands(folder, started)
    place = () if cluster is None else cluster.options
    options = ("cluster", "start", "--supervise", *highly_available(folder), *place, *NO_UI)
    (folder / "job.py").write_text(counts_program(count, _RATE))
    first = commands.daemon(*options, "--name", "first")
    if follower != "first":
        standby = commands.daemon(*options, "--standby", "--name", follower)
        wait_until(lambda: bool(standby.daemons()), 60, "a Spark that has run Python already")
    checkpoints = ("-D", "execution.checkpointing.interval=500 ms")
    commands("run", "-d", "--cluster", "first", *checkpoints, "job.py")
    wait_until(lambda: len(lines_of_files(folder / "lines")) > 2, 60, "committed lines")
    working = first.task_managers() if cluster is None else cluster.task_managers()
    workers = {one.pid for one in working}
    assert workers, "nobody works"
    driver = clusters_of(commands)["first"]["pid"]

    os.kill(driver, signal.SIGKILL)
    killed_s = time.monotonic()
    moments: dict[str, float] = {}

    def all_reached() -> bool:
        # Processes, also such as have closed their ports.
        for name, is_reached in (
            ("ended", lambda: not any(map(_lives, workers))),
            ("running", lambda: _is_running(folder, follower, driver)),
        ):
            if name not in moments and is_reached():
                moments[name] = time.monotonic() - killed_s
        return len(moments) == 2

    wait_until(all_reached, _PATIENCE_S, f"the end of workers, and the job anew: {moments}")
    if follower != "first":
        wait_until(
            lambda: clusters_of(commands).get("first", {}).get("kind") == "standby",
            _PATIENCE_S,
            "a new standby",
        )
    mistakes: list[str] = []
    if moments["ended"] > WORKERS_END_S:
        mistakes.append(f"workers of the killed driver ended after {moments['ended']:.1f} s")
    wait_until(lambda: _line_count(folder) >= count, _PATIENCE_S, "the last line")
    try:
        check_counts(folder, count)
    except AssertionError as error:
        mistakes.append(str(error))
    for name in sorted({"first", follower}):
        commands("cluster", "stop", name)
    for program in started:
        wait_until(lambda program=program: not program.processes(), 60, "the end of all processes")
    note = f"its workers had ended after {moments['ended']:.1f} s"
    return Outcome(what, moments["running"], tuple(mistakes), bound_s=FAILOVER_S, note=note)


def _line_count(folder: Path) -> int:
    return sum(map(len, lines_of_files(folder / "lines").values()))


def _lives(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in ("Z", "X")


def _is_running(folder: Path, name: str, killed_pid: int) -> bool:
    """Whether a driver of that name, other than the killed one, serves, and all tasks of the job run there."""
    for file in (folder / "home" / "clusters").glob("*.json"):
        try:
            found = connection_in(file)
            if found.connection.name != name or found.connection.pid == killed_pid:
                continue
            jobs = RestClient.of(found).get("/jobs/overview")["jobs"]
        except (RestError, OSError):
            continue  # it stands by, or the file went meanwhile
        return bool(jobs) and all(
            job["state"] == "RUNNING" and job["tasks"]["running"] == job["tasks"]["total"]
            for job in jobs
        )
    return False


def _with_programs(kill: Callable[[Path, list[Program]], Outcome]) -> Callable[[Path], Outcome]:
    def run(folder: Path) -> Outcome:
        started: list[Program] = []
        try:
            return kill(folder, started)
        finally:
            for program in started:
                program.end()

    return run


RUNS: Final = (
    ("standby", _with_programs(kill_beside_standby)),
    ("supervisor", _with_programs(kill_beside_supervisor)),
    ("standalone", _with_programs(kill_on_standalone_cluster)),
)


if __name__ == "__main__":
    raise SystemExit(run_all(RUNS, "takeovers", "Kill drivers of sessions on Spark."))
