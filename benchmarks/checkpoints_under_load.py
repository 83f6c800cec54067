"""Do checkpoints keep to their interval behind slow Python functions, what do they cost, and how soon does a job stop?

A source that could give far more, a keyed shuffle and a per-record function, on two TaskManagers; once per second a
checkpoint. Checkpoints: those that were completed in each second of `--seconds` under full back pressure, and the
durations that the JobMaster tells of them, all and without the first two (`settled_`), with a function of half a
millisecond a record. Throughput: records that a function without work of its own takes per second, with checkpoints and
without, in turn, `--turns` times; the figure is the median of the turns' ratios. Stopping: `stop_with_savepoint` with
half a millisecond a record where all records have one key, with aligned and with unaligned checkpoints; it ends when
the job has finished.

    python -m benchmarks.checkpoints_under_load [--seconds 20] [--turns 5] [--spark] [-D key=value ...] [--dry]
"""

import argparse
import contextlib
import statistics
import tempfile
import time
from collections.abc import Collection, Generator, Iterator
from dataclasses import dataclass, field
from typing import Any

from benchmarks.record import record_result
from headrace.api.client.job_client import JobClient
from headrace.common import Configuration, Types, WatermarkStrategy
from headrace.datastream import (
    KeyedProcessFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from headrace.datastream.connectors.number_seq import NumberSequenceSource
from headrace.datastream.state import ValueStateDescriptor
from headrace.gateways.job_master import JobDetails
from headrace.metrics.names import NUM_RECORDS_IN
from headrace.testing.minicluster_executor import MiniClusterExecutor

PARALLELISM = 2
INTERVAL_S = 1
SLOW_S = 0.0005
RECORD_COUNT = 1 << 40
WARM_UP_S = 5
POLL_S = 0.05
BEFORE_SETTLED = 2
"""Checkpoints of a job that has not found its rate: as many rows lie in front of a slow function as of a fast one."""
PAIR = Types.TUPLE([Types.LONG(), Types.LONG()])


class Counting(KeyedProcessFunction):
    """Counts per key, and works for so many seconds with each record."""

    def __init__(self, work_s: float) -> None:
        self.work_s = work_s

    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        self.count.update((self.count.value() or 0) + 1)
        if self.work_s:
            until = time.perf_counter() + self.work_s
            while time.perf_counter() < until:
                pass
        return iter(())


@dataclass(frozen=True)
class Load:
    """A job: what its function does, over how many keys, and how it takes checkpoints."""

    work_s: float
    key_count: int
    has_checkpoints: bool = True
    is_unaligned: bool = False
    options: dict[str, str] = field(default_factory=dict[str, str])

    def submit(self, directory: str) -> JobClient:
        settings = {"execution.checkpointing.dir": f"file://{directory}", **self.options}
        if self.has_checkpoints:
            settings["execution.checkpointing.interval"] = f"{INTERVAL_S} s"
        if self.is_unaligned:
            settings["execution.checkpointing.unaligned.enabled"] = "true"
        configuration = Configuration()
        for key, value in settings.items():
            configuration.set_string(key, value)
        environment = StreamExecutionEnvironment.get_execution_environment(configuration)
        environment.set_parallelism(PARALLELISM)
        numbers = environment.from_source(
            NumberSequenceSource(0, RECORD_COUNT),
            WatermarkStrategy.no_watermarks(),
            "numbers",
            Types.LONG(),
        )
        key_count = self.key_count
        pairs = numbers.map(lambda number: (number % key_count, number), output_type=PAIR)
        keyed = pairs.key_by(lambda value: value[0], key_type=Types.LONG())
        keyed.process(Counting(self.work_s), output_type=PAIR).print()
        return environment.execute_async("checkpoints under load")


@contextlib.contextmanager
def running(load: Load) -> Generator[JobClient]:
    """The job, once it takes records; cancelled at the end where it did not end by itself."""
    with tempfile.TemporaryDirectory() as directory:
        client = load.submit(directory)
        while not taken(client.get_job_details().result()):
            time.sleep(POLL_S)
        try:
            yield client
        finally:
            if not client.get_job_status().result().is_globally_terminal_state():
                client.cancel().result()
                with contextlib.suppress(Exception):
                    client.get_job_execution_result().result()


def taken(details: JobDetails) -> float:
    """Records that the function has taken, in all its subtasks."""
    consumers = next(each for each in details.vertices if not each.name.startswith("Source"))
    return consumers.metrics.get(NUM_RECORDS_IN.name, 0.0)


def checkpoints_of(load: Load, seconds: float) -> dict[str, Any]:
    """How many checkpoints came, and how long they took; from the first second on, as the queues fill."""
    durations: dict[int, int] = {}
    with running(load) as client:
        began = time.monotonic()
        while time.monotonic() - began < seconds:
            latest = client.get_job_details().result().checkpoints.latest_completed
            if latest is not None:
                durations[latest.checkpoint_id] = latest.duration_ms
            time.sleep(POLL_S)
        details = client.get_job_details().result()
    completed = details.checkpoints.counts.completed
    if len(durations) <= BEFORE_SETTLED:
        return {"checkpoints_per_second": completed / seconds}
    return {
        "checkpoints_per_second": completed / seconds,
        "duration_p50_ms": statistics.median(durations.values()),
        "duration_p99_ms": percentile_99(durations.values()),
        "settled_duration_p99_ms": percentile_99(list(durations.values())[BEFORE_SETTLED:]),
    }


def percentile_99(durations: Collection[int]) -> int:
    """Return the 99th percentile, which is the largest of fewer than a hundred."""
    ordered = sorted(durations)
    return ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)]


def rate_of(load: Load, seconds: float) -> float:
    """Records per second, behind the start."""
    with running(load) as client:
        time.sleep(WARM_UP_S)
        first, began = taken(client.get_job_details().result()), time.monotonic()
        time.sleep(seconds)
        last, ended = taken(client.get_job_details().result()), time.monotonic()
    return (last - first) / (ended - began)


def stopping_s(load: Load) -> float:
    """How long the job takes to stop, once it has run long enough to fill whatever can be filled."""
    with running(load) as client, tempfile.TemporaryDirectory() as directory:
        time.sleep(WARM_UP_S)
        began = time.monotonic()
        client.stop_with_savepoint(False, f"file://{directory}").result()
        return time.monotonic() - began


def measure(seconds: float, turns: int, options: dict[str, str]) -> dict[str, Any]:
    figures: dict[str, Any] = {"seconds": seconds, "turns": turns}
    for name, key_count, is_unaligned in (
        ("", 1000, False),
        ("hot_key_", 1, False),
        ("hot_key_unaligned_", 1, True),
    ):
        load = Load(SLOW_S, key_count, is_unaligned=is_unaligned, options=options)
        found = checkpoints_of(load, seconds)
        figures |= {name + key: value for key, value in found.items()}
        if key_count == 1:
            found_s = [stopping_s(load) for _ in range(turns)]
            figures |= {
                f"{name}stop_s": statistics.median(found_s),
                f"{name}stop_max_s": max(found_s),
            }
    pairs: list[tuple[float, float]] = []
    for turn in range(turns):
        loads = [Load(0, 1000, has_checkpoints=has, options=options) for has in (True, False)]
        order = loads if turn % 2 else loads[::-1]
        rates = {load.has_checkpoints: rate_of(load, seconds / 2) for load in order}
        pairs.append((rates[True], rates[False]))
    if pairs:
        figures["records_per_second"] = statistics.median(rate for rate, _ in pairs)
        figures["without_checkpoints"] = statistics.median(rate for _, rate in pairs)
        figures["ratio"] = statistics.median(on / off for on, off in pairs)
    return figures


def main() -> None:
    """Measure, and keep the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument(
        "--spark", action="store_true", help="two TaskManager processes on a local Spark"
    )
    parser.add_argument("-D", dest="options", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--dry", action="store_true", help="keep no result")
    arguments = parser.parse_args()
    options = dict(option.split("=", 1) for option in arguments.options)
    cluster = (
        contextlib.nullcontext() if arguments.spark else MiniClusterExecutor(slot_count=PARALLELISM)
    )
    with cluster:
        figures = measure(arguments.seconds, arguments.turns, options)
    figures["host"] = "spark" if arguments.spark else "minicluster"
    if options:
        figures["options"] = options
    if arguments.dry:
        print(figures)
    else:
        record_result("checkpoints_under_load", figures)


if __name__ == "__main__":
    main()
