"""Disturbances of a running job from outside: TaskManagers that are killed at random, all at once, or frozen.

Failing storage.
"""

import os
import signal
import time
from pathlib import Path
from typing import Final

from testkit.chaos.stage import Play, Stage, wait_until
from testkit.chaos.task_managers import kill_one, task_manager_pids

STORAGE_CONTROL: Final = "storage-faults"
"""File in the folder of all runs that controls how the checkpoint storage fails; see `testkit/faulty_file_system`."""


def random_kills(duration_s: float, pause_s: tuple[float, float]) -> Play:
    """Kill some TaskManager after each random pause."""

    def play(stage: Stage) -> None:
        client = stage.submit()
        end = time.monotonic() + duration_s
        while time.monotonic() < end:
            time.sleep(stage.generator.uniform(*pause_s))
            is_over = stage.has_ended(client)
            assert not is_over, f"the job ended {end - time.monotonic():.0f} s too early"
            if kill_one(stage.generator):
                stage.leave_token()
        stage.finish(client)

    return play


def kill_all(stage: Stage) -> None:
    """Kill every TaskManager at the same moment, once the job has committed something."""
    client = stage.submit()
    stage.wait_for_commits()
    for pid in task_manager_pids():
        os.kill(pid, signal.SIGKILL)
        stage.leave_token()
    stage.finish(client)


def freeze_one(duration_s: float) -> Play:
    """Freeze a TaskManager for longer than its heartbeats may be missing, then resume it: it is a zombie by then."""

    def play(stage: Stage) -> None:
        client = stage.submit()
        stage.wait_for_commits()
        pid = kill_one(stage.generator, signal.SIGSTOP)
        stage.leave_token()
        time.sleep(duration_s)
        if Path(f"/proc/{pid}").exists():
            os.kill(pid, signal.SIGCONT)
            stage.note = "resumed after its slots were given away"
        stage.finish(client)

    return play


def bad_storage(faults: str, fault_count: int) -> Play:
    """Let the checkpoint storage fail according to `faults`, kill a TaskManager meanwhile, and heal the storage.

    Waits for `fault_count` faults before the kill, and again after the recovery, unless the job has ended by then.
    """

    def play(stage: Stage) -> None:
        control = stage.directory.parent / STORAGE_CONTROL
        struck = Path(f"{control}.struck")
        struck.write_bytes(b"")
        client = stage.submit()
        stage.wait_for_commits()
        control.write_text(faults)
        try:
            wait_until(lambda: struck.stat().st_size >= fault_count, "the storage fails")
            if kill_one(stage.generator):
                stage.leave_token()
            wait_until(lambda: bool(stage.watch.recoveries_s), "the job runs again")
            wanted = struck.stat().st_size + fault_count
            wait_until(
                lambda: struck.stat().st_size >= wanted or stage.has_ended(client),
                "the storage fails again",
            )
        finally:
            control.write_text("")
        counts = client.get_job_details().result(30).checkpoints.counts
        stage.note = (
            f"{struck.stat().st_size} faults; {counts.failed} checkpoints failed of {counts.triggered} before the "
            f"storage was healed"
        )
        stage.finish(client)

    return play
