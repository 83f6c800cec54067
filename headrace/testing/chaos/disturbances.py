"""What is done to a running job from outside, without a failpoint: kills at random, all at once, frozen workers."""

import os
import random
import signal
import time
from pathlib import Path
from typing import Final

from headrace.api.job_client import JobClient
from headrace.testing.chaos.runner import (
    Disturbance,
    Run,
    kill_one,
    task_manager_pids,
    wait_until,
)

_COMMITS_FIRST: Final = 3


def random_kills(seed: int, duration_s: float, pause_s: tuple[float, float]) -> Disturbance:
    """Kill some TaskManager after each random pause."""

    def disturb(run: Run, client: JobClient) -> None:
        generator = random.Random(seed)
        end = time.monotonic() + duration_s
        while time.monotonic() < end:
            time.sleep(generator.uniform(*pause_s))
            if client.get_job_status().result(30).is_terminal_state():
                return
            if kill_one(generator):
                _leave_token(run)

    return disturb


def kill_all(run: Run, client: JobClient) -> None:
    """Kill every TaskManager at the same moment, once the job has committed something."""
    _wait_for_commits(run)
    for pid in task_manager_pids():
        os.kill(pid, signal.SIGKILL)
        _leave_token(run)


def freeze_one(duration_s: float) -> Disturbance:
    """Stop a TaskManager for longer than its heartbeat may be missed, then let it go on: a zombie by then."""

    def disturb(run: Run, client: JobClient) -> None:
        _wait_for_commits(run)
        pid = kill_one(random.Random(0), signal.SIGSTOP)
        _leave_token(run)
        time.sleep(duration_s)
        if Path(f"/proc/{pid}").exists():
            os.kill(pid, signal.SIGCONT)

    return disturb


def _wait_for_commits(run: Run) -> None:
    wait_until(lambda: len(list(run.output.glob("part-*"))) > _COMMITS_FIRST, "the job commits")


def _leave_token(run: Run) -> None:
    (run.directory / f"token-{len(run.tokens)}").touch()
