"""The moment at which a process of this machine began, which tells it from a later one with its number; its parent."""

import os
import re
from pathlib import Path
from typing import Final

_PROC: Final = Path("/proc")
_BOOT_ID: Final = _PROC / "sys/kernel/random/boot_id"
_STATE: Final = 0
_PARENT: Final = 1
_START_TIME: Final = 19
"""Places behind the name in `/proc/<pid>/stat`; the name may hold blanks and brackets itself."""
_ENDED: Final = ("Z", "X", "x")


def boot_id() -> str:
    """Return the id of this start of the kernel; empty where nobody tells."""
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return ""


def kernel_word() -> str:
    """Return a word for this start of the kernel: kernels that share a folder may not share the locks of its files."""
    return re.sub("[^0-9a-f]", "", boot_id())[:12] or "unknown"


def start_ticks(pid: int, proc: Path = _PROC) -> int:
    """Return the kernel's clock ticks from its own start to that of the process; 0 where it has ended, or nobody tells.

    Unlike a time of day it does not change when somebody sets the clock.
    """
    return _number(pid, _START_TIME, proc)


def process_start_ms(pid: int, proc: Path = _PROC) -> int:
    """Return the same as epoch milliseconds by the clock of now, to a second; 0 where it has ended, or nobody tells."""
    ticks = start_ticks(pid, proc)
    try:
        lines = (proc / "stat").read_text(encoding="ascii", errors="replace").splitlines()
        boot_s = next(int(line.split()[1]) for line in lines if line.startswith("btime "))
    except (OSError, ValueError, IndexError, StopIteration):
        return 0
    return boot_s * 1000 + ticks * 1000 // os.sysconf("SC_CLK_TCK") if ticks else 0


def parent_pid(pid: int) -> int:
    """Return the process that started this one, or inherited it; 0 where it has ended, or nobody tells."""
    return _number(pid, _PARENT, _PROC)


def _number(pid: int, place: int, proc: Path) -> int:
    try:
        text = (proc / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
        fields = text.rpartition(")")[2].split()
        return 0 if fields[_STATE] in _ENDED else int(fields[place])
    except (OSError, ValueError, IndexError):
        return 0
