"""Lets peers answer one query in turns, A B A B, each time as a process of its own, and says what each of them took.

The first turn of a peer also keeps the results of its first, smaller run, which are compared with DuckDB's answer. A
peer that fails is named with its reason, and has no further turns with this query.
"""

import json
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.nexmark.answers import ANSWERS
from benchmarks.nexmark.files import events_directory, row_counts
from benchmarks.nexmark.multiples import PROTOCOL
from benchmarks.nexmark.peers.registry import DUCKDB, HEADRACE, PEERS, Peer
from benchmarks.nexmark.peers.setup import ROOT, peer_python
from benchmarks.nexmark.queries import QUERIES
from headrace.spark.session.java_runtime import ensure_java

RUN_TIMEOUT_SECONDS: Final = 480
TURNS_FILE: Final = "turns.jsonl"
REASON_CHARACTERS: Final = 300
_PACKAGE: Final = "benchmarks.nexmark.peers"
Figures = dict[str, Any]


@dataclass(frozen=True)
class Plan:
    """Number of events and turns, and the folder of the input."""

    root: Path
    events: int
    repeats: int
    is_local: bool = False

    def events_of(self, peer: Peer, query: str) -> int:
        """Return how many events a peer is given."""
        return min(self.events, peer.events_max.get(query, self.events))

    def warm_up_events_of(self, peer: Peer, query: str) -> int:
        """Return how many events the first run of each process has, whose results are compared."""
        return min(self.events_of(peer, query) // 2, peer.warm_up_max)


class PeerFailedError(RuntimeError):
    """A peer's program failed or gave something else than figures; says what it printed last."""


def answers(peer: Peer, query: str) -> bool:
    """Return whether a peer has a program for a query."""
    return peer.queries is None or query in peer.queries


def turn_count(plan: Plan, peers: Sequence[Peer], query: str) -> int:
    """Return how many processes a query needs."""
    return sum(plan.repeats for peer in peers if answers(peer, query))


class OutOfTimeError(Exception):
    """There are turns left, and no time for the next one."""


class TakenTurns:
    """The turns of a measurement that may be interrupted: those that were taken are kept in a file below its root.

    No turn begins when `seconds` are over, counted from the making; None: there is no end.
    """

    def __init__(self, root: Path, seconds: float | None = None) -> None:
        self._file = root / TURNS_FILE
        self._deadline = None if seconds is None else time.monotonic() + seconds
        lines = self._file.read_text().splitlines() if self._file.exists() else []
        self._kept = {tuple(line["place"]): line for line in map(json.loads, lines)}

    def turn(self, plan: Plan, peer: Peer, query: str, number: int) -> Figures:
        """Take a turn, unless it was taken before; PeerFailedError, also for one that failed then, OutOfTimeError."""
        place = (query, peer.name, plan.events_of(peer, query), plan.is_local, number)
        if place not in self._kept:
            if self._deadline is not None and time.monotonic() >= self._deadline:
                raise OutOfTimeError(f"{query}: {peer.name}, turn {number + 1}")
            self._keep(place, self._take(plan, peer, query, number))
        kept = self._kept[place]
        if "failed" in kept:
            raise PeerFailedError(kept["failed"])
        return kept["figures"]

    def forget(self) -> None:
        """Have the next measurement begin anew: this one was recorded."""
        self._kept.clear()
        self._file.unlink(missing_ok=True)

    def _take(self, plan: Plan, peer: Peer, query: str, number: int) -> Figures:
        load, begun = round(os.getloadavg()[0], 2), round(time.time(), 1)
        try:
            figures = run_once(plan, peer, query, is_first=number == 0)
        except PeerFailedError as error:
            return {"failed": str(error)}
        return {"figures": figures | {"load_before": load, "begun": begun}}

    def _keep(self, place: tuple[Any, ...], line: Figures) -> None:
        self._kept[place] = {"place": place} | line
        with self._file.open("a") as kept:
            kept.write(json.dumps(self._kept[place]) + "\n")


def measure(
    plan: Plan,
    peers: Sequence[Peer],
    query: str,
    advance: Callable[[str], None],
    taken: TakenTurns,
) -> Figures:
    """Return the medians of all peers for a query, flat, and the peers that failed with their reasons.

    OutOfTimeError where turns are left for another time.
    """
    found: dict[str, list[Figures]] = {}
    failed: dict[str, str] = {}
    for turn in range(plan.repeats):
        for peer in peers:
            if not answers(peer, query):
                continue
            advance(f"{query}: {peer.name}")
            if peer.name in failed:
                continue
            try:
                found.setdefault(peer.name, []).append(taken.turn(plan, peer, query, turn))
            except PeerFailedError as error:
                failed[peer.name] = str(error)
                found.pop(peer.name, None)
    figures: Figures = {
        "query": query,
        "protocol": PROTOCOL,
        "host": "one process" if plan.is_local else "spark",
        "events": plan.events,
        "repeats": plan.repeats,
    }
    for name, runs in found.items():
        figures |= summary(name, runs, found.get(HEADRACE))
    return figures | ({"failed": failed} if failed else {})


def summary(name: str, runs: Sequence[Figures], ours: Sequence[Figures] | None) -> Figures:
    """Return medians of a peer's turns; `ratio` says how many times its rows per second Headrace takes.

    `checkpoints` is the least number that a turn completed; `begun` is when each turn began, in seconds since 1970.
    """
    rate = _rate(runs)
    flat: Figures = {
        "rows_per_second": round(rate),
        "cpu_seconds_per_mrow": round(
            statistics.median(run["cpu_seconds"] / run["input_rows"] * 1e6 for run in runs), 3
        ),
        "cpu_seconds": round(statistics.median(run["cpu_seconds"] for run in runs), 2),
        "peak_mb": max(run["peak_mb"] for run in runs),
        "events": runs[0]["events"],
        "input_rows": runs[0]["input_rows"],
        "turns": len(runs),
        "version": " ".join(f"{key} {value}" for key, value in runs[0]["versions"].items()),
    }
    if "checkpoints" in runs[0]:
        flat["checkpoints"] = min(run["checkpoints"] for run in runs)
    if "begun" in runs[0]:
        flat["load_before"] = max(run["load_before"] for run in runs)
        flat["begun"] = [run["begun"] for run in runs]
    if "same" in runs[0]:
        flat["same"] = runs[0]["same"]
    if ours and name != HEADRACE:
        flat["ratio"] = round(_rate(ours) / rate, 3)
    return {f"{name}_{key}": value for key, value in flat.items()}


def _rate(runs: Sequence[Figures]) -> float:
    return statistics.median(run["input_rows"] / run["net_runtime_ms"] * 1000 for run in runs)


def run_once(plan: Plan, peer: Peer, query: str, *, is_first: bool) -> Figures:
    """Let a peer answer a query once; in its first turn compare what it makes of the smaller set."""
    count = plan.events_of(peer, query)
    kinds = QUERIES[query].reads
    events = events_directory(plan.root, count, kinds=kinds)
    small = events_directory(plan.root, plan.warm_up_events_of(peer, query), kinds=kinds)
    with tempfile.TemporaryDirectory(dir=plan.root) as scratch:
        out = Path(scratch, "out")
        command = [peer_python(peer), "-m", f"{_PACKAGE}.{peer.module}", query, str(events)]
        command += ["--warm-up", str(small)]
        if is_first:
            command += ["--out", str(out)]
        if peer.module == PEERS[HEADRACE].module and plan.is_local:
            command.append("--local")
        figures = last_line(command, peer.variables_of(query))
        if is_first:
            figures["same"] = is_same(compared(peer, query, small, out))
    counts = row_counts(events)
    rows = sum(counts[kind] for kind in QUERIES[query].reads)
    return figures | {"events": count, "input_rows": rows}


def is_same(counts: Figures) -> bool:
    """Return whether results are DuckDB's answer, as the counts of `compared` say."""
    return counts["expected"] > 0 and not counts["missing"] and not counts["unexpected"]


def compared(peer: Peer, query: str, events: Path, out: Path) -> Figures:
    """Return how many rows DuckDB's answer has and how many were found, missing and unexpected; PeerFailedError."""
    command = [
        peer_python(PEERS[DUCKDB]),
        "-m",
        f"{_PACKAGE}.compare",
        query,
        str(events),
        str(out),
    ]
    if peer.module == PEERS[HEADRACE].module and ANSWERS[query][1] != "*":
        command += ["--select", ANSWERS[query][1]]
    return last_line(command)


def last_line(command: Sequence[str], variables: Mapping[str, str] | None = None) -> Figures:
    """Return the JSON line that a program prints last; `variables` are of its environment, beside ours."""
    environment = os.environ | dict(variables or {})
    ensure_java(environment)
    try:
        done = subprocess.run(
            command,
            cwd=ROOT,
            env=environment,
            check=True,
            capture_output=True,
            text=True,
            timeout=RUN_TIMEOUT_SECONDS,
        )
        return json.loads(done.stdout.strip().splitlines()[-1])
    except subprocess.CalledProcessError as error:
        raise PeerFailedError(reason(error.stderr or error.stdout)) from error
    except subprocess.TimeoutExpired as error:
        raise PeerFailedError(f"not done within {RUN_TIMEOUT_SECONDS} s") from error
    except (IndexError, ValueError) as error:
        raise PeerFailedError("printed no figures") from error


def reason(printed: str) -> str:
    """Return the last line that says something, shortened: those that say where in Java do not."""
    lines = [line.strip() for line in printed.splitlines() if line.strip()]
    telling = [line for line in lines if not line.startswith(("at ", "... "))]
    return telling[-1][:REASON_CHARACTERS] if telling else "failed without a word"
