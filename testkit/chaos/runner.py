"""Runs a job on real Spark while it is disturbed, and judges its committed output."""

import os
import shutil
import signal
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from headrace.api.executors import PipelineExecutor, create_executor, set_active_executor
from headrace.core.config import Settings
from headrace.core.errors import HeadraceError
from headrace.core.process import failpoints
from headrace.core.process.failpoints import FAILPOINTS, Failpoint
from testkit.chaos.digest_job import DigestJob
from testkit.chaos.jobs import ChaosJob
from testkit.chaos.plays import run_through, stop_with_savepoint
from testkit.chaos.scenarios import DRIVER, Scenario
from testkit.chaos.stage import Play, Stage
from testkit.chaos.task_managers import kill_one, task_manager_pids
from testkit.exactly_once import (
    Following,
    OutputFollower,
    Reordered,
    Verdict,
    compare_output,
    lines_of_files,
)

RUN_TIMEOUT_S: Final = 90.0
SEED: Final = 7


@dataclass(frozen=True)
class Outcome:
    """Result of one run. `mistakes` is empty if the output was exact and the moment was reached.

    `recoveries_s`: time from each disturbance until every task ran again, if it was seen. `in_flight_bytes`:
    maximum of in-flight data in a checkpoint.
    """

    scenario: str
    repeat: int
    seed: int
    duration_s: float
    disturbance_count: int
    recoveries_s: tuple[float, ...]
    note: str = ""
    mistakes: tuple[str, ...] = ()
    in_flight_bytes: int = 0

    @property
    def is_exact(self) -> bool:
        """Return whether every record was committed once, and the planned disturbances happened."""
        return not self.mistakes


class ChaosRunner:
    """One Spark application for many runs. A context manager.

    `directory` is emptied; `settings` are the cluster's, override the suite's own, and may contain `{directory}`. All
    random values of a run come from `seed`, the run's name and its number.
    """

    def __init__(
        self,
        directory: Path,
        settings: dict[str, str] | None = None,
        job: ChaosJob | None = None,
        timeout_s: float | None = None,
        seed: int = SEED,
    ) -> None:
        self.job: Final[ChaosJob] = job or DigestJob()
        self._seed: Final = seed
        self._directory: Final = directory
        self._timeout_s: Final = (
            timeout_s or RUN_TIMEOUT_S + self.job.count / self.job.rows_per_second
        )
        self._failpoints: Final = directory / "failpoints"
        given = {key: text.format(directory=directory) for key, text in (settings or {}).items()}
        self._settings: Final = {
            "headrace.spark.master": f"local[{self.job.parallelism + 4}]",
            "execution.checkpointing.interval": "300 ms",
            "execution.checkpointing.dir": str(directory / "checkpoints"),
            # All state in files, however small, as uploads must be interrupted, and files damaged.
            "execution.checkpointing.data-inline-threshold": "0",
            "restart-strategy.type": "fixed-delay",
            "restart-strategy.fixed-delay.attempts": "50",
            "restart-strategy.fixed-delay.delay": "100 ms",
            FAILPOINTS.key: f"@{self._failpoints}",
            **given,
        }
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

        def play(stage: Stage) -> None:
            if scenario.starts_afresh:
                for pid in task_manager_pids():
                    os.kill(pid, signal.SIGKILL)
            stage.note = self._arm(scenario, stage)
            (stop_with_savepoint if scenario.stops_with_savepoint else run_through)(stage)

        return self.run_with(scenario.name, repeat, play, len(scenario.failpoints))

    def run_with(self, name: str, repeat: int, play: Play, happened_count_min: int = 1) -> Outcome:
        """Run the job once by `play`, and judge it; `happened_count_min`: minimum number of disturbances."""
        directory = self._directory / f"{name.replace(' ', '-').replace(',', '')}-{repeat}"
        directory.mkdir()
        seed = zlib.crc32(f"{self._seed}/{name}/{repeat}".encode())
        stage = Stage(directory, seed, self.job, self._settings, self._timeout_s)
        started = time.monotonic()
        try:
            mistakes = self._judge(stage, play)
        finally:
            self._failpoints.write_text("")
            failpoints.disarm()
        happened = stage.happened_count
        if happened < happened_count_min and not mistakes:
            mistakes.append(
                f"the moment was not reached: {happened} of {happened_count_min} things happened"
            )
        return Outcome(
            name,
            repeat,
            seed,
            time.monotonic() - started,
            len(stage.tokens),
            tuple(stage.watch.recoveries_s),
            self._without_place(stage.note),
            tuple(self._without_place(mistake) for mistake in mistakes),
            stage.watch.in_flight_bytes,
        )

    def _without_place(self, text: str) -> str:
        """Return `text` without the path of the run's directory, which does not help a reader."""
        return text.replace(str(self._directory), "…")

    def _judge(self, stage: Stage, play: Play) -> list[str]:
        """Run the play; return the mistakes."""
        mistakes: list[str] = []
        is_partial = False
        output = stage.output
        follower = OutputFollower(lambda: lines_of_files(output) if output.exists() else {})
        try:
            with Following(follower), stage.watch.following():
                try:
                    play(stage)
                except (HeadraceError, TimeoutError, AssertionError) as error:
                    # Failures of the job, or of a named check. All other errors are failures of the suite, and raised.
                    # The rest after its first line is a traceback of this machine.
                    mistakes.append(f"{type(error).__name__}: {error}".partition("\n")[0])
                # Missing rows are no further mistake of a job that had to end early, or did.
                is_partial = stage.is_partial or bool(mistakes)
                stage.end_all()
        except AssertionError as error:
            mistakes.append(f"second reader: {error}")
        expected = stage.job.expected_rows()
        verdict = compare_output(expected, follower.records)
        if is_partial:
            verdict = Verdict(duplicated=verdict.duplicated, corrupted=verdict.corrupted)
        verdict = replace(verdict, reordered=_reordered(output, {*expected}, stage.job))
        if not verdict.is_exact:
            mistakes.append(f"oracle: {verdict}")
        return mistakes

    def _arm(self, scenario: Scenario, stage: Stage) -> str:
        """Arm the failpoints of the scenario; return them as text."""
        lines: list[str] = []
        drawn = scenario.drawn(stage.generator)
        for text in drawn:
            if text.startswith(DRIVER):
                point, _, number = text.removeprefix(DRIVER).partition("#")
                act = _killing(stage)
                failpoints.arm_with(Failpoint(point), act, time=int(number))
            else:
                lines.append(text.replace("{token}", str(stage.directory / "token")))
        self._failpoints.write_text("; ".join(lines))
        return "; ".join(text.partition("!")[0] for text in drawn)


def _reordered(output: Path, expected: set[str], job: ChaosJob) -> tuple[Reordered, ...]:
    """Return rows of a key that are out of order within a file, as one writer gets the rows of a key in order."""
    found: list[Reordered] = []
    for lines in lines_of_files(output).values():
        places = [
            (place, line) for line in lines if line in expected and (place := job.place_of(line))
        ]
        found += compare_output(
            places, places, key_of=lambda one: one[0][0], position_of=lambda one: one[0][1]
        ).reordered
    return tuple(found)


def _killing(stage: Stage) -> Callable[[], None]:
    def kill() -> None:
        if kill_one(stage.generator):
            stage.leave_token("driver")

    return kill
