"""How long does it take until state of a size is there again, and how long for one of two new subtasks?

One value of 100 bytes per key, larger ones beyond a million keys; files on the local disk. `restore_s` is until the
first value can be read, on the same key groups; `half_s` for a subtask that takes half of them; `savepoint_…` the same
from rows that any backend reads.

    python -m benchmarks.state.restore [--megabytes 10 100 1000] [--backends heap rocksdb]
"""

import argparse
import time

from benchmarks.record import record_result
from benchmarks.state.filled import BACKENDS, FilledState, keys_and_value_bytes, write
from headrace.checkpoint.handles import OperatorSubtaskState
from headrace.checkpoint.storage.subtask_storage import SubtaskStorage
from headrace.core.barriers import CheckpointOptions, SnapshotKind


def restore_seconds(backend: str, taken: OperatorSubtaskState, key_groups: range) -> float:
    """Open the state and return how long that took."""
    started = time.perf_counter()
    with FilledState(backend, taken, key_groups) as restored:
        restored.backend.set_current_key(0)
        restored.state.value()
        return time.perf_counter() - started


def measure(backend: str, megabytes: int) -> dict[str, float]:
    """Return the figures of one backend and size."""
    key_count, value_bytes = keys_and_value_bytes(megabytes)
    figures: dict[str, float] = {}
    with FilledState(backend, value_bytes=value_bytes) as filled:
        filled.fill(key_count)
        checkpoint = write(*filled.freeze(1))
        uri = f"file://{filled.directory}/savepoint"
        options = CheckpointOptions(SnapshotKind.SAVEPOINT, exclusive_uri=uri, shared_uri=uri)
        storage = SubtaskStorage(options, "bench", filled.settings)
        savepoint = write(filled.states.freeze(2, options), storage)
        for prefix, taken in (("", checkpoint), ("savepoint_", savepoint)):
            figures[f"{prefix}restore_s"] = restore_seconds(backend, taken, range(128))
            figures[f"{prefix}half_s"] = restore_seconds(backend, taken, range(64))
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--megabytes", type=int, nargs="+", default=[10, 100, 1000])
    parser.add_argument(
        "--backends", nargs="+", choices=list(BACKENDS), default=["heap", "rocksdb"]
    )
    arguments = parser.parse_args()
    figures: dict[str, float] = {}
    for backend in arguments.backends:
        for megabytes in arguments.megabytes:
            found = measure(backend, megabytes)
            print(
                backend,
                f"{megabytes} MB:",
                {name: round(value, 3) for name, value in found.items()},
            )
            figures |= {f"{backend}_{megabytes}mb_{name}": value for name, value in found.items()}
    record_result("state_restore", figures)


if __name__ == "__main__":
    main()
