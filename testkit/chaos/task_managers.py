"""The TaskManagers among this process's descendants: finds them, and sends one a signal."""

import os
import random
import signal
from collections.abc import Iterator
from pathlib import Path


def kill_one(generator: random.Random, number: int = signal.SIGKILL) -> int:
    """Send a signal to one of the TaskManagers of this process's Spark application; return its pid, 0 without any."""
    pids = task_manager_pids()
    if not pids:
        return 0
    pid = generator.choice(pids)
    os.kill(pid, number)
    return pid


def task_manager_pids() -> list[int]:
    """Return the pids of Python workers below this process, which are forks of Spark's daemon."""
    parents = _parents()
    daemons = [pid for pid in parents if _is_daemon(pid) and not _is_daemon(parents.get(pid, 0))]
    mine = [pid for pid in daemons if os.getpid() in _ancestors(pid, parents)]
    return sorted(pid for pid, parent in parents.items() if parent in mine)


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
        return b"pyspark.worker" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
