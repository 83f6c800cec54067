"""How much throughput does it cost that all metrics are reported?

Two programs on a cluster in this process, parallelism 1, source to sink through one shuffle: `columnar` converts a
price and keeps three columns, as Nexmark's q1 does, and `keyed` counts in value state, a Python call per record. Each
runs in turns without a reporter and with one that writes all groups to a file every second, which is ten times as often
as by default; the order of the turns changes. There are two figures, and the aim for both is below 2 %:

- the median, over pairs of turns, of how much more processor time the whole process took, with its standard error. The
  same work takes a tenth more or less from turn to turn on a small virtual machine, so it takes many turns;
- the share of the process's processor time that the threads which read and report metrics took themselves, which is
  exact. Records are handled by the same code with and without reporters.

    python -m benchmarks.metrics_cost [--turns 25] [--rows 20000000] [--records 2000000]
"""

import argparse
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from benchmarks.record import record_result
from headrace import StreamExecutionEnvironment, Types, col
from headrace.cluster.minicluster import MiniCluster
from headrace.common import WatermarkStrategy
from headrace.core.config import Settings
from headrace.core.ids import JobId
from headrace.core.lifecycle import JobStatus
from headrace.core.process.thread_dump import thread_cpu_ns
from headrace.core.randomness import system_random
from headrace.datastream import KeyedProcessFunction, RuntimeContext
from headrace.datastream.connectors.number_seq import NumberSequenceSource
from headrace.datastream.state import ValueStateDescriptor
from headrace.functions.sink import DiscardingSink
from headrace.graph.job_graph_generator import generate_job_graph

TIMEOUT_S: Final = 600.0
KEY_COUNT: Final = 1_000
BID: Final = pa.schema([("auction", pa.int64()), ("bidder", pa.int64()), ("price", pa.int64())])
EVERY_SECOND: Final = {
    "metrics.reporter.lines.factory.class": "jsonlines",
    "metrics.reporter.lines.interval": "1 s",
}
REPORTING_THREADS: Final = ("headrace-metrics", "headrace-reporter-")


class Count(KeyedProcessFunction):
    """Counts the records of each key."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self._count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: int, ctx: KeyedProcessFunction.Context) -> list[int]:
        count = (self._count.value() or 0) + 1
        self._count.update(count)
        return [count]


def bids_of(numbers: pa.RecordBatch) -> pa.RecordBatch:
    """Make bids of numbers."""
    values = numbers.column(0).to_numpy()
    columns = [values % KEY_COUNT, values % 7, values]
    return pa.RecordBatch.from_arrays([pa.array(each) for each in columns], schema=BID)


def columnar(env: StreamExecutionEnvironment, row_count: int) -> None:
    """Convert a price in columns."""
    numbers = env.from_source(
        NumberSequenceSource(1, row_count), WatermarkStrategy.no_watermarks(), "bids"
    )
    (
        numbers.map_batches(bids_of, BID)
        .key_by("auction")
        .select("auction", "bidder", price=col("price") * 0.908)
        .sink_to(DiscardingSink())
    )


def keyed(env: StreamExecutionEnvironment, record_count: int) -> None:
    """Count per key, record by record."""
    numbers = env.from_source(
        NumberSequenceSource(1, record_count), WatermarkStrategy.no_watermarks(), "numbers"
    )
    (
        numbers.key_by(lambda number: number % KEY_COUNT, key_type=Types.LONG())
        .process(Count(), output_type=Types.LONG())
        .sink_to(DiscardingSink())
    )


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


def take_turn(
    program: Callable[[StreamExecutionEnvironment, int], None],
    count: int,
    settings: Mapping[str, str],
) -> Turn:
    """Run the program once."""
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    program(env, count)
    job_id = JobId.generate(system_random())
    graph = generate_job_graph(env.get_stream_graph("cost"), job_id, Settings(settings))
    with MiniCluster(settings=settings) as cluster:
        began, reporting_began = time.process_time(), reporting_seconds()
        cluster.submit(graph)
        assert cluster.await_result(job_id, TIMEOUT_S).status is JobStatus.FINISHED
        return Turn(time.process_time() - began, reporting_seconds() - reporting_began)


def cost_percent(
    program: Callable[[StreamExecutionEnvironment, int], None], count: int, turns: int
) -> dict[str, float]:
    """Return both figures with what a turn takes."""
    changes: list[float] = []
    shares: list[float] = []
    without_s: list[float] = []
    with tempfile.TemporaryDirectory() as directory:
        reporting = EVERY_SECOND | {"metrics.reporter.lines.directory": directory}
        take_turn(program, count // 4, reporting)
        for turn in range(turns):
            order = ({}, reporting) if turn % 2 == 0 else (reporting, {})
            found = {bool(settings): take_turn(program, count, settings) for settings in order}
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
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int, default=25)
    parser.add_argument("--rows", type=int, default=20_000_000, help="of the columnar program")
    parser.add_argument("--records", type=int, default=2_000_000, help="of the keyed program")
    options = parser.parse_args()
    for name, program, count in (
        ("columnar", columnar, options.rows),
        ("keyed", keyed, options.records),
    ):
        figures = cost_percent(program, count, options.turns)
        record_result(
            "metrics_cost",
            {"program": name, "count": count, "turns": options.turns, **figures},
        )


if __name__ == "__main__":
    main()
