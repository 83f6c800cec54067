"""Stage: one run of a job, with its folder, its start and its end, and the means to disturb it."""

import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from headrace.api.client.job_client import JobClient
from headrace.api.environment import StreamExecutionEnvironment
from headrace.core.configuration import Configuration
from headrace.core.lifecycle import JobStatus
from testkit.chaos.jobs import OUTPUT, ChaosJob
from testkit.chaos.recovery_watch import RecoveryWatch

STALLED_AFTER_S: Final = 30.0
"""A job whose tasks all run and that commits nothing for this time has stalled, which is reported before any time-out.
"""
_POLL_S: Final = 0.02
_COMMITS_FIRST: Final = 3


class StalledError(AssertionError):
    """The job neither ends nor commits."""


@dataclass
class Stage:
    """One run of a job. `directory` is the run's own; all random values come from `seed`. `settings` are the job's.

    A play sets `job` before it submits, `note` for a remark in the report, and `is_partial` if rows may be missing
    in the end. Each disturbance of the job leaves a token, and each other planned event a sign.
    """

    directory: Path
    seed: int
    job: ChaosJob
    settings: Mapping[str, str]
    timeout_s: float
    is_partial: bool = False
    note: str = ""
    generator: random.Random = field(init=False)
    watch: RecoveryWatch = field(init=False)
    clients: list[JobClient] = field(default_factory=list[JobClient])

    def __post_init__(self) -> None:
        self.generator = random.Random(self.seed)
        self.watch = RecoveryWatch(lambda: self.tokens)

    @property
    def output(self) -> Path:
        """Directory that the job commits to."""
        return self.directory / OUTPUT

    @property
    def tokens(self) -> list[Path]:
        """Return one file for each disturbance: a kill, a freeze, or an error, delay or crash of a failpoint."""
        return sorted(self.directory.glob("token*"))

    def leave_token(self, name: str = "") -> None:
        """Note a disturbance."""
        (self.directory / f"token-{name or len(self.tokens)}").touch()

    @property
    def happened_count(self) -> int:
        """Return the number of tokens and signs."""
        return len(self.tokens) + len(list(self.directory.glob("sign-*")))

    def leave_sign(self, name: str) -> None:
        """Note another planned event that happened."""
        (self.directory / f"sign-{name}").touch()

    def submit(self, settings: Mapping[str, str] | None = None) -> JobClient:
        """Start the job."""
        env = StreamExecutionEnvironment.get_execution_environment(
            Configuration.from_dict({**self.settings, **(settings or {})})
        )
        self.job.build(env, self.directory)
        client = env.execute_async(f"{self.job.name} {self.directory.name}")
        self.clients.append(client)
        self.watch.client = client
        return client

    def finish(self, client: JobClient) -> None:
        """Wait for the end; raises the error that failed the job, or StalledError."""
        result = client.get_job_execution_result()
        count, since = self.committed_count, time.monotonic()
        deadline = since + self.timeout_s
        while not result.done():
            time.sleep(_POLL_S * 5)
            now, found = time.monotonic(), self.committed_count
            # The duration of a recovery is measured separately; one without an end ends with the time-out.
            if found != count or self.watch.is_recovering:
                count, since = found, now
            if now - since > STALLED_AFTER_S:
                said = f"nothing was committed for {STALLED_AFTER_S:g} s: {_say(client)}"
                raise StalledError(said)
            if now > deadline:
                raise TimeoutError(f"no end within {self.timeout_s:g} s: {_say(client)}")
        result.result(self.timeout_s)

    def wait_for_commits(self, count: int = _COMMITS_FIRST) -> None:
        """Wait until the job has committed more than `count` files."""
        wait_until(lambda: self.committed_count > count, "the job commits")

    def has_ended(self, client: JobClient) -> bool:
        """Return whether the job has ended, in whatever way."""
        return client.get_job_status().result(30).is_terminal_state()

    def end_all(self) -> None:
        """Cancel whatever still runs, so that no later run is disturbed."""
        for client in self.clients:
            if not self.has_ended(client):
                client.cancel_at_once().result(30)
                wait_until(lambda client=client: self.has_ended(client), "the job is cancelled")

    @property
    def committed_count(self) -> int:
        """Return the number of committed files."""
        return len(list(self.output.glob("part-*")))


Play = Callable[[Stage], None]
"""Function that runs the job of a stage to its end, and disturbs it meanwhile. Raises mistakes as errors."""


def wait_until(condition: Callable[[], bool], what: str, timeout_s: float = 90.0) -> None:
    """Wait for something that other processes do. TimeoutError, which names it, if it does not happen in time."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {timeout_s:g} s")
        time.sleep(_POLL_S)


def _say(client: JobClient) -> str:
    """Return the job's status, its subtasks' states and its checkpoint counts, for messages."""
    details = client.get_job_details().result(30)
    if details.status is not JobStatus.RUNNING:
        return f"{details.status.name}; {details.explanation}"
    states = [
        f"{vertex.name}: {', '.join(subtask.state.name for subtask in vertex.subtasks)}"
        for vertex in details.vertices
    ]
    counts = details.checkpoints.counts
    return (
        f"RUNNING; {'; '.join(states)}; checkpoints: {counts.completed} complete, {counts.failed} failed, "
        f"{counts.in_progress} under way"
    )
