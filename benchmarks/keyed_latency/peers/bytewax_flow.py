"""bytewax: a flow in two processes of one worker each; a source that is asked every millisecond, a count by key.

Nothing holds items back between its steps, so there is no timeout to set: a batch is what the source gave at once.
Without recovery, as it would write each epoch's state to SQLite: after a failure counts begin anew.
"""

import multiprocessing
import time
from collections.abc import Iterable
from datetime import timedelta
from typing import Any, Final

import bytewax.operators as op  # pyright: ignore[reportMissingImports]
from bytewax.dataflow import Dataflow  # pyright: ignore[reportMissingImports]
from bytewax.inputs import (  # pyright: ignore[reportMissingImports]
    DynamicSource,
    StatelessSourcePartition,
)
from bytewax.outputs import (  # pyright: ignore[reportMissingImports]
    DynamicSink,
    StatelessSinkPartition,
)
from bytewax.testing import cluster_main  # pyright: ignore[reportMissingImports]

from benchmarks.keyed_latency.peers.serving import Asked, serve, warm
from benchmarks.nexmark.peers.bytewax_flow import free_addresses

EPOCH: Final = timedelta(seconds=10)
"""Its default. Items of a new epoch wait until both workers have left the old one."""
Record = tuple[str, int]


class Schedule(DynamicSource):
    """Records as they become due. Where none is, bytewax asks again after a millisecond."""

    def __init__(self, asked: Asked) -> None:
        self._asked = asked

    def build(self, step_id: str, worker_index: int, worker_count: int) -> "_Part":
        return _Part(self._asked, worker_count)


class _Part(StatelessSourcePartition):
    def __init__(self, asked: Asked, worker_count: int) -> None:
        rate = asked.rate / worker_count
        self._keys = [str(key) for key in range(asked.keys)]
        self._interval_ns = int(1e9 / rate)
        self._total = int(rate * asked.seconds)
        self._emitted = 0
        self._start_ns = 0

    def next_batch(self) -> list[Record]:
        now_ns = time.time_ns()
        self._start_ns = self._start_ns or now_ns
        if self._emitted == self._total:
            raise StopIteration
        begin = self._emitted
        self._emitted = min(self._total, (now_ns - self._start_ns) // self._interval_ns + 1)
        count = len(self._keys)
        return [
            (self._keys[number % count], self._start_ns + number * self._interval_ns)
            for number in range(begin, self._emitted)
        ]


class Stopwatch(DynamicSink):
    """Reads the clock for each record that arrives."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, int]] = []

    def build(self, step_id: str, worker_index: int, worker_count: int) -> "_Lap":
        return _Lap(self.seen)


class _Lap(StatelessSinkPartition):
    def __init__(self, seen: list[tuple[int, int]]) -> None:
        self._seen = seen

    def write_batch(self, items: list[tuple[str, Any]]) -> None:
        for _, (_, due_ns) in items:
            self._seen.append((due_ns, time.time_ns() - due_ns))


def count(state: int | None, due_ns: int) -> tuple[int, tuple[int, int]]:
    """Count the records of a key, and hand each on with its number."""
    state = (state or 0) + 1
    return state, (state, due_ns)


def work(asked: Asked, addresses: list[str], index: int) -> list[int]:
    """Be one of the workers; return the latencies that it saw."""
    watch = Stopwatch()
    flow = Dataflow("keyed_latency")
    records = op.input("schedule", flow, Schedule(asked))
    op.output("stopwatch", op.stateful_map("count", records, count), watch)
    cluster_main(flow, addresses, index, epoch_interval=EPOCH)
    return warm(watch.seen, asked.warm_up_seconds)


def other_worker(asked: Asked, addresses: list[str], index: int, seen: Any) -> None:
    """Be a worker in a process of its own."""
    seen.put(work(asked, addresses, index))


def run(asked: Asked) -> Iterable[int]:
    """Run the flow in this process and others."""
    context = multiprocessing.get_context("spawn")
    seen = context.Queue()
    addresses = free_addresses()
    others = [
        context.Process(target=other_worker, args=(asked, addresses, index, seen), daemon=True)
        for index in range(1, asked.parallelism)
    ]
    for other in others:
        other.start()
    latencies = work(asked, addresses, 0)
    for _ in others:
        latencies += seen.get()
    for other in others:
        other.join()
    return latencies


if __name__ == "__main__":
    serve(run)
