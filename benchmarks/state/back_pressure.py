"""How long do checkpoints of a back-pressured job take, aligned and unaligned, by the state's size?

A pipeline of three keyed stages on Spark, as users run it, parallelism 2: a source as fast as it is let, a stage that
holds one value of 1,000 bytes per key, one that counts, and one that takes a bounded number of records per second, so
that everything before it is full. Durations are those that the job itself reports, from the trigger to the publication:
medians over the checkpoints that began when the state was there and the pipeline was full. `pause_ms` is the longest
synchronous part of a subtask, `start_delay_ms` how long after the trigger the last subtask saw its first barrier.

    python -m benchmarks.state.back_pressure [--megabytes 10 100 1000] [--backend hashmap]
"""

import argparse
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.record import record_result
from headrace.api.client.job_client import JobClient
from headrace.common import Configuration, Types, WatermarkStrategy
from headrace.core.record_batch import RecordBatch
from headrace.datastream import KeyedProcessFunction, RuntimeContext, StreamExecutionEnvironment
from headrace.datastream.state import ValueStateDescriptor
from headrace.functions.runtime_context import SubtaskContext
from headrace.functions.source import Boundedness, InputStatus, Source, SourceOutput, SourceReader
from headrace.gateways.checkpoint_statistics import CheckpointInfo

VALUE_BYTES, BATCH_ROWS, PARALLELISM = 1_000, 1_000, 2
INTERVALS_MS = {10: 500, 100: 1_000, 1_000: 4_000}
"""By state size in MB; other sizes take the longest."""
WAIT_S = 60
NOISE_BYTES = 64 << 20
"""Values are cut from so much of it, which no compression makes smaller."""
NUMBER = Types.LONG()


class Numbers(Source):
    """Each subtask counts from its index on in steps of the parallelism, without end."""

    @property
    def boundedness(self) -> Boundedness:
        """Never ends."""
        return Boundedness.CONTINUOUS_UNBOUNDED

    def create_reader(self, context: SubtaskContext) -> "NumbersReader":
        """One per subtask."""
        return NumbersReader(context)


class NumbersReader(SourceReader):
    """Emits numbers as fast as its subtask asks for them."""

    def __init__(self, context: SubtaskContext) -> None:
        self._context = context
        self._next = context.subtask_index

    def snapshot_state(self, checkpoint_id: int) -> list[bytes]:
        """The next number."""
        return [str(self._next).encode()]

    def restore_splits(self, splits: Sequence[bytes]) -> None:
        """Nothing is ever restored here."""
        raise NotImplementedError

    def poll_next(self, output: SourceOutput) -> InputStatus:
        """Emit a batch."""
        step = PARALLELISM * BATCH_ROWS
        numbers = np.arange(self._next, self._next + step, PARALLELISM, dtype=np.int64)
        self._next += step
        columns = pa.RecordBatch.from_arrays([pa.array(numbers)], names=["f0"])
        output.emit(RecordBatch.of_columns(self._context.types.output, columns))
        return InputStatus.MORE_AVAILABLE


class Hold(KeyedProcessFunction):
    """Keeps a value per key. What fills it goes no further, so that nobody behind slows that down."""

    def __init__(self, key_count: int) -> None:
        self._key_count = key_count

    def open(self, runtime_context: RuntimeContext) -> None:
        """Ask for the state."""
        descriptor = ValueStateDescriptor("held", Types.PRIMITIVE_ARRAY(Types.BYTE()))
        self._held = runtime_context.get_state(descriptor)
        self._noise = os.urandom(NOISE_BYTES)

    def process_element(self, value: int, ctx: KeyedProcessFunction.Context) -> Iterator[int]:
        """Number in; the same number out once all keys have a value."""
        if value < self._key_count:
            begin = value * VALUE_BYTES % (NOISE_BYTES - VALUE_BYTES)
            self._held.update(self._noise[begin : begin + VALUE_BYTES])
        else:
            yield value


class Count(KeyedProcessFunction):
    """Counts per key; a pause of a millisecond after each `burst` records, none where that is 0."""

    def __init__(self, burst: int = 0) -> None:
        self._burst = burst
        self._taken = 0

    def open(self, runtime_context: RuntimeContext) -> None:
        """Ask for the state."""
        self._count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: int, ctx: KeyedProcessFunction.Context) -> Iterator[int]:
        """Number in, number out."""
        self._count.update((self._count.value() or 0) + 1)
        self._taken += 1
        if self._burst and self._taken % self._burst == 0:
            time.sleep(0.001)
        yield value


def submit(megabytes: int, burst: int, backend: str, directory: str, way: str) -> JobClient:
    """Start the pipeline."""
    key_count = megabytes * 1_000_000 // VALUE_BYTES
    configuration = Configuration()
    for key, text in {
        "execution.checkpointing.interval": f"{INTERVALS_MS.get(megabytes, 4_000)} ms",
        "execution.checkpointing.min-pause": "200 ms",
        "execution.checkpointing.dir": directory,
        "execution.checkpointing.incremental": "true",
        "execution.checkpointing.tolerable-failed-checkpoints": "1000",
        "execution.checkpointing.unaligned.enabled": "true" if way == "unaligned" else "false",
        "state.backend.type": backend,
    }.items():
        configuration.set_string(key, text)
    environment = StreamExecutionEnvironment.get_execution_environment(configuration)
    environment.set_parallelism(PARALLELISM)
    (
        environment.from_source(Numbers(), WatermarkStrategy.no_watermarks(), "numbers", NUMBER)
        .key_by(lambda number: number % key_count, key_type=NUMBER)
        .process(Hold(key_count), output_type=NUMBER)
        .key_by(lambda number: number % 1_000, key_type=NUMBER)
        .process(Count(), output_type=NUMBER)
        .key_by(lambda number: number % 997, key_type=NUMBER)
        .process(Count(burst), output_type=NUMBER)
        .filter(lambda number: False)
        .print()
    )
    return environment.execute_async(f"{megabytes} MB {way}")


def completed(client: JobClient, full_bytes: float, count: int) -> tuple[list[CheckpointInfo], str]:
    """Return `count` checkpoints that began behind the first full one, and why the last failure came about."""
    found: dict[int, CheckpointInfo] = {}
    until = time.monotonic() + WAIT_S
    failure = ""
    while len(found) < count + 1 and time.monotonic() < until:
        details = client.get_job_details().result(WAIT_S)
        if details.status.is_terminal_state():
            client.get_job_execution_result().result(WAIT_S)  # raises what the job failed with
        overview = details.checkpoints
        latest = overview.latest_completed
        if latest is not None and latest.size_bytes >= full_bytes:
            found[latest.checkpoint_id] = latest
        failure = overview.latest_failed.text if overview.latest_failed else ""
        time.sleep(0.05)
    return list(found.values())[1:], failure


def measure(megabytes: int, burst: int, backend: str, way: str, count: int) -> dict[str, Any]:
    """Return the figures of one cell."""
    directory = tempfile.mkdtemp(prefix="headrace-bench-")
    try:
        started = time.monotonic()
        client = submit(megabytes, burst, backend, directory, way)
        infos, failure = completed(client, 0.9e6 * megabytes, count)
        client.cancel_at_once().result(WAIT_S)
        while not client.get_job_status().result(WAIT_S).is_terminal_state():
            time.sleep(0.05)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    cell: dict[str, Any] = {"megabytes": megabytes, "way": way, "backend": backend}
    cell |= {"checkpoints": len(infos), "seconds": round(time.monotonic() - started, 1)}
    if not infos:
        return cell | {"failure": failure or f"none was complete within {WAIT_S} s"}

    def median(figures: list[float]) -> float:
        return round(statistics.median(figures), 1)

    return cell | {
        "duration_ms": median([info.duration_ms for info in infos]),
        "duration_ms_max": max(info.duration_ms for info in infos),
        "pause_ms": median([info.slowest.sync_ms for info in infos]),
        "start_delay_ms": median([info.slowest.start_delay_ms for info in infos]),
        "alignment_ms": median([info.slowest.alignment_ms for info in infos]),
        "write_ms": median([info.slowest.async_ms for info in infos]),
        "size_mb": median([info.size_bytes / 1e6 for info in infos]),
        "in_flight_mb": median([info.slowest.in_flight_bytes / 1e6 for info in infos]),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--megabytes", type=int, nargs="+", default=[10, 100, 1_000])
    parser.add_argument("--backend", default="hashmap", choices=["hashmap", "rocksdb"])
    parser.add_argument("--ways", nargs="+", default=["aligned", "unaligned"])
    parser.add_argument("--burst", type=int, default=50, help="records per millisecond, at most")
    parser.add_argument("--checkpoints", type=int, default=3)
    arguments = parser.parse_args()
    cells: list[dict[str, Any]] = []
    for megabytes in arguments.megabytes:
        for way in arguments.ways:
            cells.append(
                measure(megabytes, arguments.burst, arguments.backend, way, arguments.checkpoints)
            )
            print(cells[-1], flush=True)
    record_result("state_back_pressure", {"cells": cells})


if __name__ == "__main__":
    main()
