"""How much throughput do checkpoints cost: one every 500 ms against none, in paired turns?

A source as fast as it is let, a keyed shuffle, and a function that counts per key in value state, over 10,000 keys, on
Spark as users run it, parallelism 2. Each subtask says when it had taken its first records, and when so many more; the
rate is all records between those two moments. `share_percent` is the median of the pairs, each of which runs one way
and the other right behind it, in changing order.

    python -m benchmarks.state.throughput [--backends hashmap rocksdb] [--turns 3] [--interval-ms 500]
"""

import argparse
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator
from typing import Any

from benchmarks.record import record_result
from headrace.common import Configuration, Types, WatermarkStrategy
from headrace.datastream import KeyedProcessFunction, RuntimeContext, StreamExecutionEnvironment
from headrace.datastream.connectors.number_seq import NumberSequenceSource
from headrace.datastream.state import ValueStateDescriptor

PARALLELISM, KEY_COUNT, WARM_UP_SHARE = 2, 10_000, 0.2
RECORDS = {"hashmap": 5_000_000, "rocksdb": 800_000}
"""Of one run, some seconds of each on two cores."""
NUMBER = Types.LONG()
MOMENT = Types.TUPLE([NUMBER, NUMBER, NUMBER])


class Count(KeyedProcessFunction):
    """Counts per key; says (subtask, records taken, nanosecond) when it is warm and near its end."""

    def __init__(self, record_count: int) -> None:
        share = record_count // PARALLELISM
        # Keys are not dealt out evenly: the last moment is one that every subtask reaches.
        self._moments = {int(share * WARM_UP_SHARE), int(share * 0.9)}
        self._taken = 0

    def open(self, runtime_context: RuntimeContext) -> None:
        """Ask for the state."""
        self._subtask = runtime_context.get_index_of_this_subtask()
        self._count = runtime_context.get_state(ValueStateDescriptor("count", NUMBER))

    def process_element(self, value: int, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        """Number in, a moment out now and then."""
        self._count.update((self._count.value() or 0) + 1)
        self._taken += 1
        if self._taken in self._moments:
            yield self._subtask, self._taken, time.monotonic_ns()


def run(backend: str, interval_ms: int) -> tuple[float, int]:
    """Run once; return records per second and how many checkpoints were complete. 0: without checkpoints."""
    record_count = RECORDS[backend]
    directory = tempfile.mkdtemp(prefix="headrace-bench-")
    configuration = Configuration()
    configuration.set_string("state.backend.type", backend)
    if interval_ms:
        for key, text in {
            "execution.checkpointing.interval": f"{interval_ms} ms",
            "execution.checkpointing.dir": directory,
            "execution.checkpointing.incremental": "true",
        }.items():
            configuration.set_string(key, text)
    environment = StreamExecutionEnvironment.get_execution_environment(configuration)
    environment.set_parallelism(PARALLELISM)
    moments = (
        environment.from_source(
            NumberSequenceSource(0, record_count - 1),
            WatermarkStrategy.no_watermarks(),
            "numbers",
            NUMBER,
        )
        .key_by(lambda number: number % KEY_COUNT, key_type=NUMBER)
        .process(Count(record_count), output_type=MOMENT)
    )
    try:
        with moments.execute_and_collect(f"{backend} {interval_ms}") as collected:
            found = list(collected)
            client = collected.get_job_client()
        details = client.get_job_details().result(60)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    rate = 0.0
    for subtask in range(PARALLELISM):
        own = sorted((taken, ns) for index, taken, ns in found if index == subtask)
        (first, first_ns), (last, last_ns) = own
        rate += (last - first) / (last_ns - first_ns) * 1e9
    return rate, details.checkpoints.counts.completed


def measure(backend: str, interval_ms: int, turns: int) -> dict[str, Any]:
    """Return the figures of one backend."""
    rates: dict[int, list[float]] = {0: [], interval_ms: []}
    completed: list[int] = []
    for turn in range(turns):
        ways = (0, interval_ms) if turn % 2 == 0 else (interval_ms, 0)
        for way in ways:
            rate, count = run(backend, way)
            rates[way].append(rate)
            if way:
                completed.append(count)
    shares = [100 * some / none for some, none in zip(rates[interval_ms], rates[0], strict=True)]
    return {
        "backend": backend,
        "interval_ms": interval_ms,
        "without_krecords_per_s": round(statistics.median(rates[0]) / 1e3, 1),
        "with_krecords_per_s": round(statistics.median(rates[interval_ms]) / 1e3, 1),
        "share_percent": round(statistics.median(shares), 1),
        "shares_percent": [round(share, 1) for share in shares],
        "checkpoints": completed,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backends", nargs="+", default=["hashmap", "rocksdb"])
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--interval-ms", type=int, default=500)
    arguments = parser.parse_args()
    cells: list[dict[str, Any]] = []
    for backend in arguments.backends:
        cells.append(measure(backend, arguments.interval_ms, arguments.turns))
        print(cells[-1], flush=True)
    record_result("state_throughput", {"cells": cells})


if __name__ == "__main__":
    main()
