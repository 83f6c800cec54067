"""Start time of a process of this machine, which tells it from a later one with the same id; and its parent."""

import os
import re
from pathlib import Path
from typing import Final

_PROC: Final = Path("/proc")
_BOOT_ID: Final = _PROC / "sys/kernel/random/boot_id"
_STATE: Final = 0
_PARENT: Final = 1
_START_TIME: Final = 19
"""Indexes of fields after the name in `/proc/<pid>/stat`; the name itself may hold blanks and brackets."""
_ENDED: Final = ("Z", "X", "x")


def boot_id() -> str:
    """Return the id of this boot of the kernel; empty if it is not available."""
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return ""


def kernel_word() -> str:
    """Return an identifier of this boot of the kernel, because kernels that share a folder may not share file locks."""
    return re.sub("[^0-9a-f]", "", boot_id())[:12] or "unknown"


def start_ticks(pid: int, proc: Path = _PROC) -> int:
    """Return the process's start in kernel clock ticks since boot; 0 if it has ended, or the time is not available.

    Unlike a time of day it does not change when the clock is set.
    """
    return _number(pid, _START_TIME, proc)


def process_start_ms(pid: int, proc: Path = _PROC) -> int:
    """Return the process's start in epoch milliseconds by the current clock, to a second; 0 if it is not available."""
    ticks = start_ticks(pid, proc)
    try:
        lines = (proc / "stat").read_text(encoding="ascii", errors="replace").splitlines()
        boot_s = next(int(line.split()[1]) for line in lines if line.startswith("btime "))
    except (OSError, ValueError, IndexError, StopIteration):
        return 0
    return boot_s * 1000 + ticks * 1000 // os.sysconf("SC_CLK_TCK") if ticks else 0


def parent_pid(pid: int) -> int:
    """Return the id of the parent process; 0 if the process has ended, or the parent is not available."""
    return _number(pid, _PARENT, _PROC)


def _number(pid: int, place: int, proc: Path) -> int:
    try:
        text = (proc / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
        fields = text.rpartition(")")[2].split()
        return 0 if fields[_STATE] in _ENDED else int(fields[place])
    except (OSError, ValueError, IndexError):
        return 0
