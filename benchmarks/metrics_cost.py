"""How much throughput does it cost that all metrics are counted and reported?

Two programs on a cluster in this process, parallelism 1: Nexmark's q1, which converts prices in columns as fast as it
can, and that of `keyed_latency`, which counts in value state at a steady rate, a Python call per record. Each runs in
turns without a reporter and with one that writes all groups to a file, every second unless told otherwise: ten times as
often as by default. The order of the turns changes. What metrics cost is the sum of two figures, and the aim for it is
below 2 %:

- the share of the process's processor time that the threads which read and report metrics took themselves, which is
  exact. Records are handled by the same code with and without reporters;
- the share that this code takes to count: in a turn of its own all calls of counters, meters, histograms and of the
  accounts of a task's time are counted, and multiplied with what a call of each takes, the fastest of several loops.
  Additions to plain integers beside a batch of records (numRecordsIn) are not calls, and not in it.

A third one checks that nothing is forgotten: the median, over pairs of turns, of how much more processor time the whole
process took, with its standard error. The same work takes a tenth more or less from turn to turn on a small virtual
machine, so it takes many turns to say much.

    python -m benchmarks.metrics_cost [--turns 25] [--events 10000000] [--seconds 10] [--interval "10 s"] [--program q1]
"""

import argparse
import statistics
import tempfile
import threading
import time
import timeit
from collections import Counter as Counts
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
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
from headrace.core.clock import SystemClock
from headrace.core.config import Settings
from headrace.core.ids import JobId
from headrace.core.lifecycle import JobStatus
from headrace.core.process.thread_dump import thread_cpu_ns
from headrace.core.randomness import system_random
from headrace.functions.sink import DiscardingSink
from headrace.graph.job_graph_generator import generate_job_graph
from headrace.metrics.instruments import Counter, Distribution, Histogram, Meter
from headrace.task.metrics import EdgeTimes, Occupation, TaskTimes

TIMEOUT_S: Final = 600.0
RATE: Final = 20_000
Program = Callable[[StreamExecutionEnvironment], object]
_CALLS: Final = 100_000
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


def seconds_per_call() -> dict[tuple[type, str], float]:
    """Return what one call takes of each method that a task counts with, by class and method, in seconds."""
    clock = SystemClock()
    counter, meter, spread, last = Counter(), Meter(clock), Distribution(), Histogram(1_000)
    times, edges = TaskTimes(clock), EdgeTimes(clock, 2)
    uses, outputs = list(Occupation), iter([0, 1] * 10 * _CALLS)
    # Each changes the account, as only a change reads the clock.
    changes = iter([uses[number % len(uses)] for number in range(20 * _CALLS)])
    calls: dict[tuple[type, str], Callable[[], object]] = {
        (Counter, "inc"): lambda: counter.inc(3),
        (Meter, "mark_event"): lambda: meter.mark_event(3),
        (Distribution, "update"): lambda: spread.update(3),
        (Histogram, "update"): lambda: last.update(3),
        (TaskTimes, "occupy"): lambda: times.occupy(next(changes)),
        (TaskTimes, "hard_back_pressured"): lambda: times.hard_back_pressured(3),
        (EdgeTimes, "blame"): lambda: edges.blame(next(outputs)),
    }
    return {
        key: min(timeit.repeat(call, number=_CALLS, repeat=5)) / _CALLS
        for key, call in calls.items()
    }


@contextmanager
def counted_calls(methods: Mapping[tuple[type, str], float]) -> Generator[Counts[tuple[type, str]]]:
    """Count the calls of these methods by any thread, as long as the context lasts."""
    found: Counts[tuple[type, str]] = Counts()
    originals = {(kind, name): getattr(kind, name) for kind, name in methods}

    def counting(key: tuple[type, str]) -> Callable[..., object]:
        def call(*arguments: object) -> object:
            found[key] += 1
            return originals[key](*arguments)

        return call

    for kind, name in originals:
        setattr(kind, name, counting((kind, name)))
    try:
        yield found
    finally:
        for (kind, name), original in originals.items():
            setattr(kind, name, original)


def counting_seconds(program: Program) -> float:
    """Return the processor time that a run of the program takes to count, without reporters."""
    costs = seconds_per_call()
    with counted_calls(costs) as calls:
        take_turn(program, {})
    assert calls[TaskTimes, "occupy"], (
        "no task has accounted for its time: what is counted has moved"
    )
    return sum(count * costs[key] for key, count in calls.items())


def cost_percent(program: Program, turns: int, interval: str) -> dict[str, float]:
    """Return the three figures with what a turn takes."""
    changes: list[float] = []
    shares: list[float] = []
    without_s: list[float] = []
    with tempfile.TemporaryDirectory() as directory:
        reporting = {
            "metrics.reporter.lines.factory.class": "jsonlines",
            "metrics.reporter.lines.interval": interval,
            "metrics.reporter.lines.directory": directory,
        }
        take_turn(program, reporting)
        for turn in range(turns):
            order = ({}, reporting) if turn % 2 == 0 else (reporting, {})
            found = {bool(settings): take_turn(program, settings) for settings in order}
            without_s.append(found[False].process_s)
            changes.append(100 * (found[True].process_s / found[False].process_s - 1))
            shares.append(100 * found[True].reporting_s / found[True].process_s)
    counting_s = counting_seconds(program)
    return {
        "counting_percent": 100 * counting_s / statistics.median(without_s),
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
    parser.add_argument("--interval", default="1 s", help="of the reporter")
    parser.add_argument("--program", choices=("q1", "keyed_latency"), help="one of them alone")
    parser.add_argument("--data", type=Path, default=Path(tempfile.gettempdir()) / "nexmark")
    options = parser.parse_args()
    wanted = (options.program,) if options.program else ("q1", "keyed_latency")
    for name in wanted:
        if name == "q1":
            program = q1(events_directory(options.data, options.events, kinds=("bid",)))
            size = {"events": options.events}
        else:
            program, size = keyed_latency(options.seconds), {"seconds": options.seconds}
        figures = cost_percent(program, options.turns, options.interval)
        facts = {"program": name, **size, "turns": options.turns, "interval": options.interval}
        record_result("metrics_cost", {**facts, **figures})


if __name__ == "__main__":
    main()
