"""Runs the digest job on real Spark, kills TaskManagers at named moments, and judges what the job committed."""

import os
import random
import shutil
import signal
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from headrace.api.environment import StreamExecutionEnvironment
from headrace.api.executors import PipelineExecutor, create_executor, set_active_executor
from headrace.api.job_client import JobClient
from headrace.core import failpoints
from headrace.core.config import Settings
from headrace.core.configuration import Configuration
from headrace.core.errors import JobCancelledError, JobExecutionError
from headrace.core.failpoints import FAILPOINTS, Failpoint
from headrace.core.lifecycle import ExecutionState
from headrace.testing.chaos.digest_job import DigestJob, build, expected_rows
from headrace.testing.chaos.scenarios import Scenario
from headrace.testing.exactly_once import (
    Following,
    OutputFollower,
    compare_output,
    lines_of_files,
)

RUN_TIMEOUT_S: Final = 90.0
_POLL_S: Final = 0.02


@dataclass(frozen=True)
class Outcome:
    """How one run went. `mistakes` is empty where the output was exact and the moment was reached.

    `recovery_s`: from the first kill until every task ran again; None where that was not seen.
    """

    scenario: str
    repeat: int
    duration_s: float
    kill_count: int
    recovery_s: float | None
    mistakes: tuple[str, ...] = ()

    @property
    def is_exact(self) -> bool:
        """Whether every record came out once, although what was to happen did."""
        return not self.mistakes


@dataclass
class Run:
    """One run of the job: its folder, and what has happened to it so far."""

    directory: Path
    kill_times: list[float] = field(default_factory=list[float])

    @property
    def output(self) -> Path:
        """Where the job commits to."""
        return self.directory / "output"

    @property
    def tokens(self) -> list[Path]:
        """One file for every process that killed itself."""
        return sorted(self.directory.glob("token*"))


Disturbance = Callable[[Run, JobClient], None]
"""Does something to a running job, and leaves a token in the run's folder for each time."""


class ChaosRunner:
    """One Spark application for many runs. A context manager.

    `directory` is emptied; `settings` are the cluster's, over the suite's own.
    """

    def __init__(
        self,
        directory: Path,
        settings: dict[str, str] | None = None,
        job: DigestJob | None = None,
        timeout_s: float | None = None,
    ) -> None:
        self.job: Final = job or DigestJob()
        self._directory: Final = directory
        self._timeout_s: Final = (
            timeout_s or RUN_TIMEOUT_S + self.job.count / self.job.rows_per_second
        )
        self._failpoints: Final = directory / "failpoints"
        self._settings: Final = {
            "headrace.spark.master": f"local[{self.job.parallelism + 4}]",
            "execution.checkpointing.interval": "300 ms",
            "execution.checkpointing.dir": str(directory / "checkpoints"),
            "restart-strategy.type": "fixed-delay",
            "restart-strategy.fixed-delay.attempts": "50",
            "restart-strategy.fixed-delay.delay": "100 ms",
            FAILPOINTS.key: f"@{self._failpoints}",
            **(settings or {}),
        }
        self._expected: Final = expected_rows(self.job)
        self._executor: PipelineExecutor | None = None

    def __enter__(self) -> "ChaosRunner":
        shutil.rmtree(self._directory, ignore_errors=True)
        self._directory.mkdir(parents=True)
        self._executor = create_executor(Settings(self._settings))
        set_active_executor(self._executor)
        return self

    def __exit__(self, *_: object) -> None:
        set_active_executor(None)
        if self._executor is not None:
            self._executor.close()

    def run(self, scenario: Scenario, repeat: int) -> Outcome:
        """Run the job once and judge it."""
        name = scenario.name.replace(" ", "-")
        run = Run(self._directory / f"{name}-{repeat}")
        run.directory.mkdir()
        self._arm(scenario, run)
        try:
            return self._judge(scenario.name, repeat, run, scenario=scenario)
        finally:
            self._failpoints.write_text("")
            failpoints.disarm()

    def run_with(self, name: str, repeat: int, disturb: "Disturbance") -> Outcome:
        """Run the job once while `disturb` does what it likes to it, and judge it."""
        run = Run(self._directory / f"{name.replace(' ', '-')}-{repeat}")
        run.directory.mkdir()
        return self._judge(name, repeat, run, disturb=disturb)

    def _arm(self, scenario: Scenario, run: Run) -> None:
        lines: list[str] = []
        for text in scenario.failpoints:
            if text.startswith("driver:"):
                point, _, number = text.removeprefix("driver:").partition("#")
                act = self._killing(run)
                failpoints.arm_with(Failpoint(point), act, time=int(number))
            else:
                lines.append(text.replace("{token}", str(run.directory / "token")))
        self._failpoints.write_text("; ".join(lines))

    def _killing(self, run: Run) -> Callable[[], None]:
        def kill() -> None:
            if kill_one(random.Random(0)):
                (run.directory / f"token-driver-{len(run.tokens)}").touch()

        return kill

    def _judge(
        self,
        name: str,
        repeat: int,
        run: Run,
        *,
        scenario: Scenario | None = None,
        disturb: "Disturbance | None" = None,
    ) -> Outcome:
        started = time.monotonic()
        watch = RecoveryWatch(run)
        mistakes: list[str] = []
        follower = OutputFollower(lambda: lines_of_files(run.output) if run.output.exists() else {})
        try:
            with Following(follower), watch.following():
                if scenario is not None and scenario.stops_with_savepoint:
                    self._run_in_two_parts(run, watch)
                else:
                    client = self._submit(run, watch)
                    if disturb is not None:
                        disturb(run, client)
                    client.get_job_execution_result().result(self._timeout_s)
        except (JobExecutionError, JobCancelledError, TimeoutError, AssertionError) as error:
            # The job's own end, or what the second reader saw. Anything else is a failure of the suite, and raised.
            mistakes.append(f"{type(error).__name__}: {error}")
        verdict = compare_output(self._expected, follower.records)
        if not verdict.is_exact:
            mistakes.append(str(verdict))
        wanted = 1 if scenario is None else len(scenario.failpoints)
        if len(run.tokens) < wanted:
            mistakes.append(
                f"the moment was not reached: {len(run.tokens)} of {wanted} things happened"
            )
        duration_s = time.monotonic() - started
        return Outcome(name, repeat, duration_s, len(run.tokens), watch.recovery_s, tuple(mistakes))

    def _submit(self, run: Run, watch: "RecoveryWatch", savepoint: str = "") -> JobClient:
        values = {"execution.state-recovery.path": savepoint} if savepoint else {}
        env = StreamExecutionEnvironment.get_execution_environment(
            Configuration.from_dict({**self._settings, **values})
        )
        build(env, self.job, run.output)
        client = env.execute_async(f"digest {run.directory.name}")
        watch.client = client
        return client

    def _run_in_two_parts(self, run: Run, watch: "RecoveryWatch") -> None:
        """Stop with a savepoint in the middle, however often that takes, and go on from it."""
        client = self._submit(run, watch)
        wait_until(lambda: len(list(run.output.glob("*"))) > 2, "the job commits")
        savepoint = ""
        for _ in range(10):
            try:
                future = client.stop_with_savepoint(False, str(run.directory / "savepoints"))
                savepoint = future.result(self._timeout_s)
                break
            except Exception:
                wait_until(lambda: watch.is_running, "the job runs again")
        self._submit(run, watch, savepoint).get_job_execution_result().result(self._timeout_s)


class RecoveryWatch:
    """Looks at a job all the time, to see how long it takes after the first kill until every task runs again."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self.client: JobClient | None = None
        self.recovery_s: float | None = None
        self.is_running = False
        self._is_over = threading.Event()

    @contextmanager
    def following(self) -> Generator[None]:
        """Look while the body runs."""
        thread = threading.Thread(target=self._look_on, name="recovery-watch", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._is_over.set()
            thread.join()

    def _look_on(self) -> None:
        was_down = False
        while not self._is_over.wait(_POLL_S):
            client = self.client
            if client is None:
                continue
            try:
                details = client.get_job_details().result(5)
            except Exception:
                continue
            states = [subtask.state for vertex in details.vertices for subtask in vertex.subtasks]
            self.is_running = all(state is ExecutionState.RUNNING for state in states)
            tokens = self._run.tokens
            if not tokens or self.recovery_s is not None:
                continue
            was_down = was_down or not self.is_running
            if was_down and self.is_running:
                self.recovery_s = time.time() - min(token.stat().st_ctime for token in tokens)


def kill_one(generator: random.Random, number: int = signal.SIGKILL) -> int:
    """Send a signal to one of the TaskManagers of this process's Spark application; return its pid, 0 without any."""
    pids = task_manager_pids()
    if not pids:
        return 0
    pid = generator.choice(pids)
    os.kill(pid, number)
    return pid


def task_manager_pids() -> list[int]:
    """Python workers below this process: forks of Spark's daemon."""
    parents = _parents()
    daemons = [pid for pid in parents if _is_daemon(pid) and not _is_daemon(parents.get(pid, 0))]
    mine = [pid for pid in daemons if os.getpid() in _ancestors(pid, parents)]
    return [pid for pid, parent in parents.items() if parent in mine]


def wait_until(condition: Callable[[], bool], what: str, timeout_s: float = RUN_TIMEOUT_S) -> None:
    """Wait for something that other processes do. TimeoutError names it."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {timeout_s:g} s")
        time.sleep(_POLL_S)


def _parents() -> dict[int, int]:
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                status = (entry / "stat").read_text()
            except OSError:
                continue
            fields = status.rpartition(")")[2].split()
            if fields[0] != "Z":
                parents[int(entry.name)] = int(fields[1])
    return parents


def _ancestors(pid: int, parents: dict[int, int]) -> Iterator[int]:
    while pid in parents:
        pid = parents[pid]
        yield pid


def _is_daemon(pid: int) -> bool:
    try:
        return b"pyspark.daemon" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
