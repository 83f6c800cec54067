"""How long does a record take from its source through one keyed shuffle, at 10,000 records per second on two cores?

Each record carries the nanosecond it was due at its source; the keyed function behind the shuffle subtracts that from
its own reading of the same machine's clock. The job runs on Spark as users run it: source and keyed function are
separate TaskManager processes where `--parallelism` is 2. The first records are a warm-up and are left out. With
`--checkpoint-interval` the job takes exactly-once checkpoints meanwhile.

    python -m benchmarks.keyed_latency [--rate 10000] [--seconds 20] [--buffer-timeouts 0 1 5] [--parallelism 2]
        [--checkpoint-interval 500]
"""

import argparse
import tempfile
import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.record import record_result
from headrace.common import Configuration, Types, WatermarkStrategy
from headrace.core.record_batch import RecordBatch
from headrace.datastream import KeyedProcessFunction, RuntimeContext, StreamExecutionEnvironment
from headrace.functions.source import Boundedness, InputStatus, Source, SourceOutput, SourceReader
from headrace.functions.subtask_context import SubtaskContext

PAIR = Types.TUPLE([Types.LONG(), Types.LONG()])
TICK_MS = 1


class SteadySource(Source):
    """`rate` records per second and subtask, each stamped with the moment it was due."""

    def __init__(self, rate: int, seconds: float, key_count: int) -> None:
        self.rate, self.seconds, self.key_count = rate, seconds, key_count

    @property
    def boundedness(self) -> Boundedness:
        """Ends after `seconds`."""
        return Boundedness.BOUNDED

    def create_reader(self, context: SubtaskContext) -> "SteadyReader":
        """One per subtask."""
        return SteadyReader(self, context)


class SteadyReader(SourceReader):
    """Emits what is due at every tick; never ahead of time."""

    def __init__(self, source: SteadySource, context: SubtaskContext) -> None:
        self._source = source
        self._context = context
        self._interval_ns = int(1e9 / source.rate)
        self._total = int(source.rate * source.seconds)
        self._emitted = 0
        self._start_ns = 0

    def start(self) -> None:
        """The first record is due now, and those before a restored position were."""
        self._start_ns = time.time_ns() - self._emitted * self._interval_ns

    def snapshot_state(self, checkpoint_id: int) -> Sequence[bytes]:
        """How far it is."""
        return [self._emitted.to_bytes(8, "big")]

    def restore_splits(self, splits: Sequence[bytes]) -> None:
        """Go on from there."""
        self._emitted = sum(int.from_bytes(split, "big") for split in splits)

    def poll_next(self, output: SourceOutput) -> InputStatus:
        """Emit the records that are due."""
        due = min(self._total, (time.time_ns() - self._start_ns) // self._interval_ns + 1)
        if due > self._emitted:
            numbers = np.arange(self._emitted, due, dtype=np.int64)
            stamps = self._start_ns + numbers * self._interval_ns
            columns = pa.RecordBatch.from_arrays(
                [pa.array(numbers % self._source.key_count), pa.array(stamps)], names=["f0", "f1"]
            )
            output.emit(RecordBatch.of_columns(self._context.types.output, columns))
            self._emitted = due
        if self._emitted == self._total:
            return InputStatus.END_OF_INPUT
        timers = self._context.timers
        timers.schedule(timers.now_ms() + TICK_MS, lambda _: self._context.wake())
        return InputStatus.NOTHING_AVAILABLE


class Latency(KeyedProcessFunction):
    """Emits each record's latency in microseconds."""

    def open(self, runtime_context: RuntimeContext) -> None:
        """Nothing to open: the clock is the machine's."""

    def process_element(self, value: tuple[int, int], ctx: object) -> Iterator[int]:
        """Key and stamp in, latency out."""
        yield (time.time_ns() - value[1]) // 1000


def main() -> None:
    """Run once for each buffer timeout and keep the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--warm-up-seconds", type=float, default=5)
    parser.add_argument("--buffer-timeouts", type=int, nargs="+", default=[5], help="ms")
    parser.add_argument("--checkpoint-interval", type=int, default=0, help="ms; 0: none")
    parser.add_argument("--parallelism", type=int, default=2)
    parser.add_argument("--keys", type=int, default=1000)
    arguments = parser.parse_args()
    for buffer_timeout_ms in arguments.buffer_timeouts:
        record_result("keyed_latency", measure(arguments, buffer_timeout_ms))


def measure(arguments: argparse.Namespace, buffer_timeout_ms: int) -> dict[str, Any]:
    """Run one job and return its latencies."""
    with tempfile.TemporaryDirectory() as directory:
        configuration = Configuration()
        configuration.set_string("execution.checkpointing.dir", directory)
        environment = StreamExecutionEnvironment.get_execution_environment(configuration)
        environment.set_parallelism(arguments.parallelism)
        environment.set_buffer_timeout(buffer_timeout_ms)
        if arguments.checkpoint_interval:
            environment.enable_checkpointing(arguments.checkpoint_interval)
        per_subtask = arguments.rate // arguments.parallelism
        source = SteadySource(
            per_subtask, arguments.seconds + arguments.warm_up_seconds, arguments.keys
        )
        latencies = (
            environment.from_source(source, WatermarkStrategy.no_watermarks(), "steady", PAIR)
            .key_by(lambda value: value[0], key_type=Types.LONG())
            .process(Latency(), output_type=Types.LONG())
        )
        with latencies.execute_and_collect("keyed latency") as records:
            measured = np.fromiter(records, dtype=np.int64)
    warm = measured[int(arguments.rate * arguments.warm_up_seconds) :] / 1000
    percentiles = {f"p{p}_ms": float(np.percentile(warm, p)) for p in (50, 90, 99, 99.9)}
    return {
        "records": len(warm),
        "rate_per_second": arguments.rate,
        "buffer_timeout_ms": buffer_timeout_ms,
        "checkpoint_interval_ms": arguments.checkpoint_interval,
        "parallelism": arguments.parallelism,
        **percentiles,
        "max_ms": float(warm.max()),
    }


if __name__ == "__main__":
    main()
