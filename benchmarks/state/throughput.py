"""How much throughput do checkpoints cost: one every 500 ms against none, in turns within one job?

A source as fast as it is let, a keyed shuffle, and a function that counts per key in value state, over 10,000 keys, on
Spark as users run it, parallelism 2. The job takes no checkpoints of its own: in every other turn it is asked for one
every 500 ms, or as often as they are complete. A turn's rate is the records that the function took in it. The
share of a turn with checkpoints is its rate by the mean of the turns before and behind it, so that a machine that grows
slower or faster meanwhile says nothing; `share_percent` is the median of them.

    python -m benchmarks.state.throughput [--backends hashmap rocksdb] [--turns 14] [--turn-s 5]
"""

import argparse
import shutil
import statistics
import tempfile
import time
from itertools import pairwise
from typing import Any

from rich.progress import track

from benchmarks.record import record_result
from headrace.api.client.job_client import JobClient
from headrace.common import Configuration, Types, WatermarkStrategy
from headrace.datastream import KeyedProcessFunction, RuntimeContext, StreamExecutionEnvironment
from headrace.datastream.connectors.number_seq import NumberSequenceSource
from headrace.datastream.state import ValueStateDescriptor
from headrace.functions.sink import DiscardingSink

PARALLELISM, KEY_COUNT = 2, 10_000
ENDLESS = 10**15
WARM_UP_S, WAIT_S = 8, 60
NUMBER = Types.LONG()


class Count(KeyedProcessFunction):
    """Counts per key; nothing comes out."""

    def open(self, runtime_context: RuntimeContext) -> None:
        """Ask for the state."""
        self._count = runtime_context.get_state(ValueStateDescriptor("count", NUMBER))

    def process_element(self, value: int, ctx: KeyedProcessFunction.Context) -> None:
        """Number in."""
        self._count.update((self._count.value() or 0) + 1)


def submit(backend: str, directory: str) -> JobClient:
    """Start the job."""
    configuration = Configuration()
    for key, text in {
        "state.backend.type": backend,
        "execution.checkpointing.dir": directory,
        "execution.checkpointing.incremental": "true",
    }.items():
        configuration.set_string(key, text)
    environment = StreamExecutionEnvironment.get_execution_environment(configuration)
    environment.set_parallelism(PARALLELISM)
    numbers = NumberSequenceSource(0, ENDLESS)
    (
        environment.from_source(numbers, WatermarkStrategy.no_watermarks(), "numbers", NUMBER)
        .key_by(lambda number: number % KEY_COUNT, key_type=NUMBER)
        .process(Count(), output_type=NUMBER)
        .sink_to(DiscardingSink())
    )
    return environment.execute_async(f"counts on {backend}")


def records_taken(client: JobClient) -> float:
    """Return how many records the counting vertex has taken, 0 while it does not run."""
    details = client.get_job_details().result(WAIT_S)
    if details.status.is_terminal_state():
        client.get_job_execution_result().result(WAIT_S)  # raises what the job failed with
    return details.vertices[-1].metrics.get("numRecordsIn", 0)


def rate_of_turn(client: JobClient, turn_s: float, interval_ms: int) -> tuple[float, int]:
    """Return records per second of a turn, and how many checkpoints were complete in it. 0 ms: it takes none."""
    begin, first = time.monotonic(), records_taken(client)
    count, due = 0, begin
    while interval_ms and due < begin + turn_s:
        time.sleep(max(0.0, due - time.monotonic()))
        due = max(due + interval_ms / 1000, time.monotonic())
        client.trigger_checkpoint().result(WAIT_S)
        count += 1
    time.sleep(max(0.0, begin + turn_s - time.monotonic()))
    last, end = records_taken(client), time.monotonic()
    return (last - first) / (end - begin), count


def measure(backend: str, interval_ms: int, turns: int, turn_s: float) -> dict[str, Any]:
    """Return the figures of one backend."""
    directory = tempfile.mkdtemp(prefix="headrace-bench-")
    without: list[float] = []
    rates: list[float] = []
    completed: list[int] = []
    try:
        client = submit(backend, directory)
        while not records_taken(client):
            time.sleep(0.1)
        time.sleep(WARM_UP_S)
        without.append(rate_of_turn(client, turn_s, 0)[0])
        for _ in track(range(turns), f"with checkpoints and without, {backend}"):
            rate, count = rate_of_turn(client, turn_s, interval_ms)
            rates.append(rate)
            completed.append(count)
            without.append(rate_of_turn(client, turn_s, 0)[0])
        client.cancel_at_once().result(WAIT_S)
        while not client.get_job_status().result(WAIT_S).is_terminal_state():
            time.sleep(0.05)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    beside = [statistics.mean(pair) for pair in pairwise(without)]
    shares = [100 * some / none for some, none in zip(rates, beside, strict=True)]
    return {
        "backend": backend,
        "interval_ms": interval_ms,
        "turn_s": turn_s,
        "without_krecords_per_s": round(statistics.median(without) / 1e3, 1),
        "with_krecords_per_s": round(statistics.median(rates) / 1e3, 1),
        "share_percent": round(statistics.median(shares), 1),
        "shares_percent": [round(share, 1) for share in shares],
        "checkpoints": completed,
    }


def main() -> None:
    """Measure and keep."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backends", nargs="+", default=["hashmap", "rocksdb"])
    parser.add_argument("--turns", type=int, default=14, help="turns with checkpoints")
    parser.add_argument("--turn-s", type=float, default=5, help="seconds of each turn")
    parser.add_argument("--interval-ms", type=int, default=500)
    arguments = parser.parse_args()
    cells: list[dict[str, Any]] = []
    for backend in arguments.backends:
        cells.append(measure(backend, arguments.interval_ms, arguments.turns, arguments.turn_s))
        print(cells[-1], flush=True)
    record_result("state_throughput", {"cells": cells})


if __name__ == "__main__":
    main()
