"""Stacks of functions with how often each was seen, as py-spy writes them, and what a flame graph shows of them.

A line is `outermost (file:line);...;innermost (file:line) count`.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.page import picture, table
from benchmarks.record import RESULTS

FLAMES: Final = RESULTS / "flames"
SHARE_MIN: Final = 0.008
"""Of all samples; what is less is neither kept apart in the figures nor drawn."""
_WAITS: Final = (
    "Condition.wait (threading.py",
    "EventLoopThread._body (headrace/core",
    "ParentWatch._run (headrace/spark",
    "Mailbox.wait (headrace/task",
)
"""Functions without calls of their own that hold a thread while it waits; the system does not always say so."""
_AREAS: Final = {
    "headrace/operators": "operators",
    "headrace/connectors": "sources and sinks",
    "headrace/network": "network",
    "headrace/task": "tasks",
    "headrace/rpc": "control plane",
    "headrace/cluster": "control plane",
    "headrace/": "other parts of Headrace",
    "pyarrow/": "pyarrow",
}
ELSEWHERE: Final = "elsewhere"
AREAS: Final = (*dict.fromkeys(_AREAS.values()), ELSEWHERE)
_STARTS: Final = (
    "Thread._bootstrap (threading.py",
    "Thread._bootstrap_inner (threading.py",
    "Thread.run (threading.py",
    "ThreadTaskRunner.run.<locals>.body (headrace/task",
)
SHOWN: Final = 6
"""Functions in the table of a query."""
TEXT: Final = """\
## Where Headrace's time goes

One TaskManager of two while a query runs again and again, deployment and checkpoints included: functions in Python,
callers above, as wide as their share of the samples in which a thread was on a processor. What Arrow's kernels take
counts for the function that called them. Files bear the names that they had when the stacks were taken. Made anew by
`python -m benchmarks.nexmark.flame_graphs`.
"""

Stack = tuple[str, ...]
Stacks = Counter[Stack]
"""How often each was seen."""


def read_stacks(text: str) -> Stacks:
    """Return the stacks of a profile, without those that wait."""
    stacks: Stacks = Counter()
    for line in text.splitlines():
        frames, _, count = line.rpartition(" ")
        stack = tuple(frames.split(";"))
        if not stack[-1].startswith(_WAITS):
            stacks[stack] += int(count)
    return stacks


def write_stacks(stacks: Stacks) -> str:
    """Return what `read_stacks` reads; a stack that was seldom seen counts for the caller's part that was not."""
    total = sum(stacks.values())
    seen: Stacks = Counter()
    for stack, count in stacks.items():
        for depth in range(len(stack)):
            seen[stack[: depth + 1]] += count
    kept: Stacks = Counter()
    for stack, count in stacks.items():
        while len(stack) > 1 and seen[stack] < SHARE_MIN * total:
            stack = stack[:-1]
        kept[stack] += count
    return "".join(f"{';'.join(stack)} {count}\n" for stack, count in sorted(kept.items()))


def area_of(frame: str) -> str:
    """Return which part of the system a frame belongs to."""
    for prefix, area in _AREAS.items():
        if f"({prefix}" in frame:
            return area
    return ELSEWHERE


def own_shares(stacks: Stacks) -> list[tuple[str, float]]:
    """Return the functions in which most samples were themselves, with their percent, largest first."""
    own: Counter[str] = Counter()
    for stack, count in stacks.items():
        own[stack[-1]] += count
    return [(frame, 100 * count / own.total()) for frame, count in own.most_common()]


def profiles(directory: Path = FLAMES) -> dict[str, Stacks]:
    """Return the kept profiles by query."""
    paths = sorted(directory.glob("*.txt"), key=lambda path: int(path.stem[1:]))
    return {path.stem: read_stacks(path.read_text()) for path in paths}


@dataclass(frozen=True)
class Cell:
    """A function at its place: `begin` and `width` are shares of all samples, callers have a smaller `depth`."""

    depth: int
    begin: float
    width: float
    frame: str


def cells_of(stacks: Stacks) -> Iterator[Cell]:
    """Yield what is to be drawn. A thread's beginning, which says nothing, takes no room."""
    yield from _cells(stacks, stacks.total(), 0, 0, 0.0)


def _cells(stacks: Stacks, total: int, level: int, depth: int, begin: float) -> Iterator[Cell]:
    callees: dict[str, Stacks] = {}
    for stack, count in stacks.items():
        if len(stack) > level:
            callees.setdefault(stack[level], Counter())[stack] += count
    for frame, below in sorted(callees.items(), key=lambda item: -item[1].total()):
        width = below.total() / total
        if width < SHARE_MIN:
            return
        is_start = frame.startswith(_STARTS)
        if not is_start:
            yield Cell(depth, begin, width, frame)
        yield from _cells(below, total, level + 1, depth + (not is_start), begin)
        begin += width


def flames_text(stacks: Mapping[str, Stacks], drawn: Sequence[str]) -> str:
    """Return the chapter of the report; empty without profiles."""
    parts: list[str] = []
    for query, seen in stacks.items():
        rows = [[f"`{frame}`", share] for frame, share in own_shares(seen)[:SHOWN]]
        parts.append(f"### {query}\n\n{picture(f'nexmark_flames_{query}', drawn)}\n")
        parts.append(table(["samples in itself", "%"], rows) + "\n")
    return "\n".join([TEXT, *parts]) if parts else ""
