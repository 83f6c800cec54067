"""How much throughput does it cost that all metrics are reported?

Two programs on a cluster in this process, parallelism 1: Nexmark's q1, which converts prices in columns as fast as it
can, and that of `keyed_latency`, which counts in value state at a steady rate, a Python call per record. Each runs in
turns without a reporter and with one that writes all groups to a file every second, which is ten times as often as by
default; the order of the turns changes. There are two figures, and the aim for both is below 2 %:

- the median, over pairs of turns, of how much more processor time the whole process took, with its standard error. The
  same work takes a tenth more or less from turn to turn on a small virtual machine, so it takes many turns;
- the share of the process's processor time that the threads which read and report metrics took themselves, which is
  exact. Records are handled by the same code with and without reporters.

    python -m benchmarks.metrics_cost [--turns 25] [--events 10000000] [--seconds 10]
"""

import argparse
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.keyed_latency.program import Load, keyed_counts
from benchmarks.nexmark.files import events_directory
from benchmarks.nexmark.queries import QUERIES
from benchmarks.nexmark.streams import EventStreams
from benchmarks.record import record_result
from headrace import StreamExecutionEnvironment
from headrace.cluster.minicluster import MiniCluster
from headrace.core.config import Settings
from headrace.core.ids import JobId
from headrace.core.lifecycle import JobStatus
from headrace.core.process.thread_dump import thread_cpu_ns
from headrace.core.randomness import system_random
from headrace.functions.sink import DiscardingSink
from headrace.graph.job_graph_generator import generate_job_graph

TIMEOUT_S: Final = 600.0
RATE: Final = 20_000
Program = Callable[[StreamExecutionEnvironment], object]
EVERY_SECOND: Final = {
    "metrics.reporter.lines.factory.class": "jsonlines",
    "metrics.reporter.lines.interval": "1 s",
}
REPORTING_THREADS: Final = ("headrace-metrics", "headrace-reporter-")


def q1(events: Path) -> Program:
    """Return Nexmark's first query over the bids of a folder."""

    def build(env: StreamExecutionEnvironment) -> None:
        QUERIES["q1"].build(EventStreams(env, events)).sink_to(DiscardingSink())

    return build


def keyed_latency(seconds: float) -> Program:
    """Return the program of benchmarks/keyed_latency, which takes so many seconds at its own rate."""

    def build(env: StreamExecutionEnvironment) -> None:
        keyed_counts(env, Load(RATE, seconds, parallelism=1)).sink_to(DiscardingSink())

    return build


@dataclass(frozen=True)
class Turn:
    """Processor time of one run, without the cluster's start and end: of the process, and of what reports metrics."""

    process_s: float
    reporting_s: float


def reporting_seconds() -> float:
    """Return the processor time so far of the threads that read and report metrics."""
    return sum(
        (thread_cpu_ns(thread.native_id or 0) or 0) / 1e9
        for thread in threading.enumerate()
        if thread.name.startswith(REPORTING_THREADS)
    )


def take_turn(program: Program, settings: Mapping[str, str]) -> Turn:
    """Run the program once."""
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    program(env)
    job_id = JobId.generate(system_random())
    graph = generate_job_graph(env.get_stream_graph("cost"), job_id, Settings(settings))
    with MiniCluster(settings=settings) as cluster:
        began, reporting_began = time.process_time(), reporting_seconds()
        cluster.submit(graph)
        assert cluster.await_result(job_id, TIMEOUT_S).status is JobStatus.FINISHED
        return Turn(time.process_time() - began, reporting_seconds() - reporting_began)


def cost_percent(program: Program, turns: int) -> dict[str, float]:
    """Return both figures with what a turn takes."""
    changes: list[float] = []
    shares: list[float] = []
    without_s: list[float] = []
    with tempfile.TemporaryDirectory() as directory:
        reporting = EVERY_SECOND | {"metrics.reporter.lines.directory": directory}
        take_turn(program, reporting)
        for turn in range(turns):
            order = ({}, reporting) if turn % 2 == 0 else (reporting, {})
            found = {bool(settings): take_turn(program, settings) for settings in order}
            without_s.append(found[False].process_s)
            changes.append(100 * (found[True].process_s / found[False].process_s - 1))
            shares.append(100 * found[True].reporting_s / found[True].process_s)
    return {
        "cost_percent": statistics.median(changes),
        # Of a median, where errors are normal.
        "standard_error_percent": 1.25 * statistics.stdev(changes) / len(changes) ** 0.5,
        "reporting_threads_percent": statistics.median(shares),
        "turn_cpu_s": statistics.median(without_s),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--turns", type=int, default=25)
    parser.add_argument("--events", type=int, default=10_000_000, help="of Nexmark, for q1")
    parser.add_argument("--seconds", type=float, default=10.0, help="of keyed_latency")
    parser.add_argument("--data", type=Path, default=Path(tempfile.gettempdir()) / "nexmark")
    options = parser.parse_args()
    events = events_directory(options.data, options.events, kinds=("bid",))
    for name, program, size in (
        ("q1", q1(events), {"events": options.events}),
        ("keyed_latency", keyed_latency(options.seconds), {"seconds": options.seconds}),
    ):
        figures = cost_percent(program, options.turns)
        record_result("metrics_cost", {"program": name, **size, "turns": options.turns, **figures})


if __name__ == "__main__":
    main()
