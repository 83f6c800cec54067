"""How much of the processors something else took meanwhile: what tells an engine's latency from the machine's.

By the kernel's count of all processors, what a hypervisor gave to others among it, less what our own processes took.
"""

from pathlib import Path
from typing import Final

from benchmarks.nexmark.peers.measure import read_tree

_CHILD_TIMES: Final = slice(11, 15)
"""User and system time of a process and of its children that have ended, behind its name in its stat file."""
_IDLE: Final = (3, 4)


class OthersShare:
    """A context; `percent` of all processors' time in it went to others, or None where the system does not tell."""

    def __init__(self) -> None:
        self.percent: float | None = None

    def __enter__(self) -> "OthersShare":
        self._before = _times()
        return self

    def __exit__(self, *_: object) -> None:
        after = _times()
        total, busy, own = (now - before for now, before in zip(after, self._before, strict=True))
        # Below 0 where a process of ours ended whose time nobody took over: then what is left of it is not known.
        if total > 0 and own >= 0:
            self.percent = round(max(0.0, 100 * (busy - own) / total), 1)


def _times() -> tuple[int, int, int]:
    """Ticks of all processors: of all time, of work, and of work of our own processes."""
    try:
        lines = Path("/proc/stat").read_text().splitlines()
    except OSError:
        return 0, 0, 0
    # The time of guests stands in that of users too.
    ticks = [int(word) for word in lines[0].split()[1:9]]
    return sum(ticks), sum(ticks) - sum(ticks[place] for place in _IDLE), _own_ticks()


def _own_ticks() -> int:
    total = 0
    for process in read_tree():
        try:
            stat = Path("/proc", str(process), "stat").read_text()
        except OSError:
            continue  # it has ended; who waits for it has its time
        total += sum(map(int, stat.rpartition(")")[2].split()[_CHILD_TIMES]))
    return total
