"""How long does a task stand still for a checkpoint, and how long does the checkpoint take, by the state's size?

One value of 100 bytes per key, larger ones beyond a million keys. `pause_ms` is the synchronous part; `write_s` the
asynchronous one while the task goes on writing as fast as it can; `slowdown` is the task's rate without a checkpoint by
its rate during one; `stall_ms` the longest 1,000 writes during the checkpoint, less their median without one. The
second checkpoint comes after a tenth of the keys was written again: what it writes is an increment in RocksDB,
everything on the heap.

    python -m benchmarks.state.checkpoint [--megabytes 10 100 1000] [--backends heap rocksdb rocksdb_full]
"""

import argparse
import statistics
import time
from concurrent.futures import Future, ThreadPoolExecutor

from benchmarks.record import record_result
from benchmarks.state.filled import BACKENDS, FilledState, keys_and_value_bytes, write
from headrace.checkpoint.handles import OperatorSubtaskState
from headrace.core.threads import share_interpreter

BURST = 1_000
LARGEST_FULL_MB = 100
"""Full snapshots of RocksDB go row by row: how they grow shows in what is smaller."""


def bursts(
    filled: FilledState, key_count: int, until: "Future[OperatorSubtaskState] | None"
) -> list[float]:
    """Write bursts of values until the checkpoint is written, or 100 of them; return the seconds of each.

    Bursts go round the first `key_count` keys.
    """
    seconds: list[float] = []
    begin = 0
    while not until.done() if until is not None else len(seconds) < 100:
        started = time.perf_counter()
        filled.put(begin, BURST)
        seconds.append(time.perf_counter() - started)
        begin = (begin + BURST) % max(1, key_count - BURST + 1)
    return seconds or [0.0]


def checkpoint(
    filled: FilledState, checkpoint_id: int, key_count: int, quiet_s: float
) -> dict[str, float]:
    """Take one checkpoint under load and return its figures."""
    with ThreadPoolExecutor(1) as io_thread:
        started = time.perf_counter()
        frozen, storage = filled.freeze(checkpoint_id)
        frozen_at = time.perf_counter()
        writing = io_thread.submit(write, frozen, storage)
        busy = bursts(filled, key_count, writing)
        taken = writing.result()
        ended = time.perf_counter()
    filled.states.checkpoint_completed(checkpoint_id)
    return {
        "pause_ms": (frozen_at - started) * 1e3,
        "write_s": ended - frozen_at,
        "slowdown": statistics.fmean(busy) / quiet_s,
        "stall_ms": (max(busy) - quiet_s) * 1e3,
        "written_mb": storage.written_bytes / 1e6,
        "size_mb": taken.size_bytes / 1e6,
    }


def changed_count(key_count: int, changed_share: float) -> int:
    """How many keys are written from the first checkpoint on: a burst at least."""
    return min(key_count, max(BURST, round(key_count * changed_share)))


def measure(backend: str, megabytes: int, changed_share: float) -> dict[str, float]:
    """Return the figures of one backend and size."""
    key_count, value_bytes = keys_and_value_bytes(megabytes)
    with FilledState(backend, value_bytes=value_bytes) as filled:
        filled.fill(key_count)
        changed = changed_count(key_count, changed_share)
        quiet_s = statistics.median(bursts(filled, changed, None))
        first = checkpoint(filled, 1, changed, quiet_s)
        filled.put(0, changed)
        second = checkpoint(filled, 2, changed, quiet_s)
    figures = {"quiet_us_per_write": quiet_s / BURST * 1e6}
    figures |= {f"first_{name}": value for name, value in first.items()}
    return figures | {f"second_{name}": value for name, value in second.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--megabytes", type=int, nargs="+", default=[10, 100, 1000])
    parser.add_argument("--backends", nargs="+", choices=list(BACKENDS), default=list(BACKENDS))
    parser.add_argument("--changed", type=float, default=0.01)
    arguments = parser.parse_args()
    share_interpreter()  # as TaskManagers do
    figures: dict[str, float] = {"changed_share": arguments.changed}
    for backend in arguments.backends:
        for megabytes in arguments.megabytes:
            if backend == "rocksdb_full" and megabytes > LARGEST_FULL_MB:
                continue
            found = measure(backend, megabytes, arguments.changed)
            print(
                backend,
                f"{megabytes} MB:",
                {name: round(value, 2) for name, value in found.items()},
            )
            figures |= {f"{backend}_{megabytes}mb_{name}": value for name, value in found.items()}
    record_result("state_checkpoint", figures)


if __name__ == "__main__":
    main()
