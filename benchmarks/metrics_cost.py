"""How much throughput does it cost that all metrics are counted and reported?

Two programs on a cluster in this process, parallelism 1: Nexmark's q1, which converts prices in columns as fast as it
can, and that of `keyed_latency`, which counts in value state at a steady rate, a Python call per record. All groups go
to a file, every second unless told otherwise: ten times as often as by default. What metrics cost is the sum of two
figures, and the aim for it is below 2 %:

- `reporting_percent`: a program runs once, and its metrics are read and reported in every second window of time only.
  The figure is how much more processor time the whole process takes per record in a window with reports than in the
  neighbouring one without, the median of all pairs, with its standard error. The share of the processor time that the
  threads which read and report took themselves stands beside it, `reporting_threads_percent`: it is exact, and leaves
  out only what they make the others wait for;
- `counting_percent`: records are handled by the same code with and without reporters, so its calls of counters, meters,
  histograms and of the accounts of a task's time are counted in a run of its own, and multiplied with what a call of
  each takes, the fastest of several loops. Additions to plain integers beside a batch of records (numRecordsIn) are not
  calls, and not in it.

    python -m benchmarks.metrics_cost [--pairs 40] [--window 3] [--interval "1 s"] [--program q1]
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
from typing import Final, Self

from benchmarks.counting_sink import COUNT, CountingSink
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
from headrace.core.process.thread_dump import thread_cpu_ns
from headrace.core.randomness import system_random
from headrace.graph.job_graph_generator import generate_job_graph
from headrace.metrics.instruments import Counter, Distribution, Histogram, Meter
from headrace.metrics.reporters.registry import MetricRegistry
from headrace.task.metrics import EdgeTimes, Occupation, TaskTimes

WARM_UP_S: Final = 5.0
DAY_S: Final = 86_400.0
EVENTS: Final = 10_000_000
COPIES: Final = 1_000
"""How often q1 reads them: more than it can in all its windows."""
RATE: Final = 20_000
Program = Callable[[StreamExecutionEnvironment], object]
_CALLS: Final = 100_000
_HAND_OUT: Final = "_hand_out"
REPORTING_THREADS: Final = ("headrace-metrics", "headrace-reporter-")


def q1(events: Path) -> Program:
    """Return Nexmark's first query over the bids of a folder."""

    def build(env: StreamExecutionEnvironment) -> None:
        QUERIES["q1"].build(EventStreams(env, events)).sink_to(CountingSink())

    return build


@contextmanager
def repeated_bids(events: Path, copies: int) -> Generator[Path]:
    """Yield a folder with so many links to each file of bids, beside `events`, as long as the context lasts."""
    with tempfile.TemporaryDirectory(dir=events.parent) as name:
        folder = Path(name) / "bid"
        folder.mkdir()
        for copy in range(copies):
            for file in (events / "bid").iterdir():
                (folder / f"{copy:04}-{file.name}").hardlink_to(file)
        yield Path(name)


def keyed_latency(env: StreamExecutionEnvironment) -> None:
    """Build the program of benchmarks/keyed_latency, which goes on for a day."""
    keyed_counts(env, Load(RATE, DAY_S, parallelism=1)).sink_to(CountingSink())


@dataclass(frozen=True)
class Moment:
    """What was taken and done up to a moment: processor time of the process, that of what reports metrics, and rows."""

    process_s: float
    reporting_s: float
    rows: int

    @classmethod
    def now(cls) -> Self:
        """Return the present one."""
        return cls(time.process_time(), reporting_seconds(), COUNT.rows)

    def seconds_per_row_until(self, end: "Moment") -> float:
        """Return the processor time of the process per row between two moments."""
        return (end.process_s - self.process_s) / (end.rows - self.rows)


def reporting_seconds() -> float:
    """Return the processor time so far of the threads that read and report metrics."""
    return sum(
        (thread_cpu_ns(thread.native_id or 0) or 0) / 1e9
        for thread in threading.enumerate()
        if thread.name.startswith(REPORTING_THREADS)
    )


@contextmanager
def running(program: Program, settings: Mapping[str, str]) -> Generator[None]:
    """Run the program in a cluster, warm, as long as the context lasts."""
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    program(env)
    job_id = JobId.generate(system_random())
    graph = generate_job_graph(env.get_stream_graph("cost"), job_id, Settings(settings))
    with MiniCluster(settings=settings) as cluster:
        cluster.submit(graph)
        time.sleep(WARM_UP_S)
        assert COUNT.rows, "the program has not begun"
        yield


@contextmanager
def switched_reports() -> Generator[threading.Event]:
    """Yield a switch: metrics are read and reported only while it is set."""
    switch = threading.Event()
    original = vars(MetricRegistry)[_HAND_OUT]

    def hand_out(*arguments: object) -> None:
        if switch.is_set():
            original(*arguments)

    setattr(MetricRegistry, _HAND_OUT, hand_out)
    try:
        yield switch
    finally:
        setattr(MetricRegistry, _HAND_OUT, original)


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


def counting_percent(program: Program, seconds: float) -> float:
    """Return the share of the processor time that counting takes, of a run without reporters, in percent."""
    costs = seconds_per_call()
    with running(program, {}):
        began = Moment.now()
        time.sleep(seconds)
        plain_s = began.seconds_per_row_until(Moment.now())
    with counted_calls(costs) as calls, running(program, {}):
        calls.clear()
        began = Moment.now()
        time.sleep(seconds)
        counted, rows = calls.copy(), Moment.now().rows - began.rows
    assert counted[TaskTimes, "occupy"], (
        "no task has accounted for its time: what is counted has moved"
    )
    counting_s = sum(count * costs[key] for key, count in counted.items())
    return 100 * counting_s / rows / plain_s


def reporting_percent(
    program: Program, pairs: int, window_s: float, interval: str
) -> dict[str, float]:
    """Return what reports cost, from windows of one run with and without them."""
    changes: list[float] = []
    shares: list[float] = []
    with tempfile.TemporaryDirectory() as directory, switched_reports() as switch:
        reporting = {
            "metrics.reporter.lines.factory.class": "jsonlines",
            "metrics.reporter.lines.interval": interval,
            "metrics.reporter.lines.directory": directory,
        }
        with running(program, reporting):
            for pair in range(pairs):
                found: dict[bool, float] = {}
                for is_on in (False, True) if pair % 2 == 0 else (True, False):
                    (switch.set if is_on else switch.clear)()
                    began = Moment.now()
                    time.sleep(window_s)
                    ended = Moment.now()
                    found[is_on] = began.seconds_per_row_until(ended)
                    if is_on:
                        reporting_s = ended.reporting_s - began.reporting_s
                        shares.append(100 * reporting_s / (ended.process_s - began.process_s))
                changes.append(100 * (found[True] / found[False] - 1))
            assert any(Path(directory).iterdir()), "nothing was reported"
    return {
        "reporting_percent": statistics.median(changes),
        # Of a median, where errors are normal.
        "standard_error_percent": 1.25 * statistics.stdev(changes) / len(changes) ** 0.5,
        "reporting_threads_percent": statistics.median(shares),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--pairs", type=int, default=40, help="of windows with and without reports")
    parser.add_argument("--window", type=float, default=3.0, help="seconds of one window")
    parser.add_argument("--interval", default="1 s", help="of the reporter")
    parser.add_argument("--program", choices=("q1", "keyed_latency"), help="one of them alone")
    parser.add_argument("--data", type=Path, default=Path(tempfile.gettempdir()) / "nexmark")
    options = parser.parse_args()
    events = events_directory(options.data, EVENTS, kinds=("bid",))
    with repeated_bids(events, COPIES) as bids:
        programs: dict[str, Program] = {"q1": q1(bids), "keyed_latency": keyed_latency}
        for name in (options.program,) if options.program else programs:
            facts = {"program": name, "pairs": options.pairs, "window_s": options.window}
            figures = reporting_percent(
                programs[name], options.pairs, options.window, options.interval
            )
            counting = counting_percent(programs[name], seconds=5 * options.window)
            record_result(
                "metrics_cost",
                {**facts, "interval": options.interval, **figures, "counting_percent": counting},
            )


if __name__ == "__main__":
    main()
