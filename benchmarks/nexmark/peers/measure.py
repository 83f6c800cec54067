"""What the programs of all peers share: their arguments, and the time and memory of their whole process tree.

Standard library only, as each peer has an interpreter of its own. `python -m benchmarks.nexmark.peers.<peer> QUERY
DIRECTORY [--warm-up DIRECTORY] [--out DIRECTORY]` prints one JSON line: milliseconds of the running job, processor
seconds of all processes in that time, and the most memory they had.
"""

import argparse
import importlib.metadata
import json
import os
import threading
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, Final

SAMPLE_SECONDS: Final = 0.2
CHECKPOINT_VARIABLE: Final = "HEADRACE_NEXMARK_CHECKPOINT_MS"
"""How often a streaming engine takes checkpoints, in place of every second."""
_TICKS_PER_SECOND: Final = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
_BID: Final = ("auction", "bidder", "price", "date_time")

# By query: which columns it needs of which kind.
READS: Final[Mapping[str, Mapping[str, tuple[str, ...]]]] = {
    "q0": {"bid": _BID},
    "q1": {"bid": _BID},
    "q2": {"bid": ("auction", "price")},
    "q3": {"auction": ("id", "seller", "category"), "person": ("id", "name", "city", "state")},
    "q5": {"bid": ("auction", "date_time")},
    "q7": {"bid": _BID},
    "q7max": {"bid": ("price", "date_time")},
    "q8": {"person": ("id", "name", "date_time"), "auction": ("seller", "date_time")},
    "q11": {"bid": ("bidder", "date_time")},
}
TEXTS: Final = frozenset({"name", "city", "state"})

Figures = dict[str, Any]
Run = Callable[[str, Path, Path | None], Figures]
"""Runs a query over a directory of events, into a directory or nowhere; returns what `Measured.figures` does."""


def process_facts(stat: str) -> tuple[int, int]:
    """Return the parent of a process and the clock ticks that it took, not its children, of its stat file."""
    fields = stat.rpartition(")")[2].split()
    return int(fields[1]), int(fields[11]) + int(fields[12])


def tree_of(root: int, parents: Mapping[int, int]) -> set[int]:
    """Return a process and all that descend from it."""
    members = {root}
    while True:
        more = {child for child, parent in parents.items() if parent in members} - members
        if not more:
            return members
        members |= more


def read_tree() -> dict[int, int]:
    """Return the ticks of each process of our tree."""
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                stat = Path("/proc", entry, "stat").read_text()
            except OSError:
                continue  # it has ended
            parents[int(entry)], ticks[int(entry)] = process_facts(stat)
    return {process: ticks.get(process, 0) for process in tree_of(os.getpid(), parents)}


def _own_bytes(process: int) -> int:
    """Return the resident bytes of a process that no file backs: mapped files and libraries are not counted."""
    try:
        fields = Path(f"/proc/{process}/statm").read_text().split()
    except OSError:
        return 0
    return (int(fields[1]) - int(fields[2])) * _PAGE_BYTES


class Measured:
    """The time in which a job runs, as a context: wall and processor seconds, and peak memory of all processes.

    Of a process that has ended, what it was last seen to have taken counts: not every parent lives to tell.
    """

    def __init__(self) -> None:
        self.wall_ms = 0.0
        self.cpu_seconds = 0.0
        self.peak_bytes = 0
        self._ticks: dict[int, int] = {}
        # The thread that takes samples and the one that asks for processor seconds both look.
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._sampler = threading.Thread(target=self._sample, daemon=True)

    def __enter__(self) -> "Measured":
        self._ticks = read_tree()
        self._ticks_before = sum(self._ticks.values())
        self._sampler.start()
        self._started = time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        self.wall_ms = (time.perf_counter() - self._started) * 1000
        self.cpu_seconds = self.cpu_seconds_so_far()
        self._ended.set()
        self._sampler.join()

    def cpu_seconds_so_far(self) -> float:
        """Return the processor seconds of this process and all its descendants since the start."""
        return (sum(self._look().values()) - self._ticks_before) / _TICKS_PER_SECOND

    def _look(self) -> dict[int, int]:
        members = read_tree()
        with self._lock:
            self._ticks |= members
            self.peak_bytes = max(self.peak_bytes, sum(map(_own_bytes, members)))
            return dict(self._ticks)

    def _sample(self) -> None:
        while not self._ended.wait(SAMPLE_SECONDS):
            self._look()

    def figures(
        self,
        net_runtime_ms: float | None = None,
        cpu_seconds: float | None = None,
        checkpoints: int | None = None,
    ) -> Figures:
        """Return what was measured; an engine that tells more exactly when its job ran says so.

        `checkpoints`: how many it completed in that time; None where it takes none.
        """
        counted = {} if checkpoints is None else {"checkpoints": checkpoints}
        return counted | {
            "net_runtime_ms": round(self.wall_ms if net_runtime_ms is None else net_runtime_ms, 1),
            "cpu_seconds": round(self.cpu_seconds if cpu_seconds is None else cpu_seconds, 2),
            "peak_mb": round(self.peak_bytes / 1e6),
        }


def peer_main(run: Run, queries: Collection[str], packages: Collection[str]) -> None:
    """Be the program of a peer.

    With `--warm-up` the query runs over that directory first, which starts processes and compiles; `--out` keeps the
    results of the first run. The last run is the one that is measured, and it throws its results away.
    """
    parser = argparse.ArgumentParser()
    parser.add_argument("query", choices=sorted(queries))
    parser.add_argument("directory", type=Path)
    parser.add_argument("--warm-up", type=Path)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    if arguments.warm_up is not None:
        run(arguments.query, arguments.warm_up, arguments.out)
    elif arguments.out is not None:
        run(arguments.query, arguments.directory, arguments.out)
    figures = run(arguments.query, arguments.directory, None)
    described = {
        "query": arguments.query,
        "versions": {package: importlib.metadata.version(package) for package in packages},
    }
    print(json.dumps(described | figures), flush=True)
