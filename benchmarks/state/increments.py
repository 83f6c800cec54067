"""How much does each of ten increments of RocksDB upload, and what do settings change that make it less?

A tenth of the keys, drawn anew, is written between two checkpoints. `written_mb` is what each increment uploaded,
`size_mb` what each checkpoint refers to; then, with all increments there, `read_us` is the processor time of reading
a key, `scan_s` that of going through all keys in order, and `restore_s` the time until a value can be read again.

    python -m benchmarks.state.increments [--megabytes 10 100] [--settings …]
"""

import argparse
import time
from collections.abc import Callable
from typing import Any, Final
from unittest.mock import patch

from benchmarks.record import record_result
from benchmarks.state.filled import FilledState, keys_and_value_bytes, write
from benchmarks.state.restore import restore_seconds
from headrace.checkpoint.handles import OperatorSubtaskState
from headrace.core.randomness import SeededRandom
from headrace.state.rocksdb.database import Database, rocksdict

INCREMENTS: Final = 10
READS: Final = 20_000
BACKEND: Final = "rocksdb"


def _universal(options: Any) -> None:
    options.set_compaction_style(rocksdict().DBCompactionStyle.universal())


SETTINGS: Final[dict[str, Callable[[Any], object]]] = {
    "as it is": lambda options: None,
    "files of 1 MB": lambda options: options.set_target_file_size_base(1 << 20),
    "merged at 8 new files": lambda options: options.set_level_zero_file_num_compaction_trigger(8),
    "universal compaction": _universal,
    "never merged": lambda options: options.set_disable_auto_compactions(True),
}


def measure(setting: str, megabytes: int) -> dict[str, Any]:
    """Return the figures of one setting and size."""
    options_of = vars(Database)["_options"]

    def changed(database: Database) -> Any:
        options = options_of(database)
        SETTINGS[setting](options)
        return options

    key_count, value_bytes = keys_and_value_bytes(megabytes)
    random = SeededRandom(3)
    with (
        patch.object(Database, "_options", changed),
        FilledState(BACKEND, value_bytes=value_bytes) as filled,
    ):
        filled.fill(key_count)
        taken = [take(filled, 1)]
        for checkpoint_id in range(2, INCREMENTS + 2):
            for key in random.sample(range(key_count), key_count // 10):
                filled.put(key, 1)
            taken.append(take(filled, checkpoint_id))
        last, _ = taken[-1]
        return {
            "setting": setting,
            "megabytes": megabytes,
            "written_mb": [round(written / 1e6, 1) for _, written in taken],
            "size_mb": [round(state.size_bytes / 1e6, 1) for state, _ in taken],
            "read_us": read_us(filled, random.sample(range(key_count), min(READS, key_count))),
            "scan_s": scan_s(filled),
            "restore_s": min(restore_seconds(BACKEND, last, range(128)) for _ in range(3)),
        }


def take(filled: FilledState, checkpoint_id: int) -> tuple[OperatorSubtaskState, int]:
    """Take a checkpoint; return what it refers to, and how many bytes were uploaded for it."""
    frozen, storage = filled.freeze(checkpoint_id)
    taken = write(frozen, storage)
    filled.states.checkpoint_completed(checkpoint_id)
    return taken, storage.written_bytes


def read_us(filled: FilledState, keys: list[int]) -> float:
    """Processor time of a read, in microseconds: the least of three rounds."""
    scope, value = filled.backend.key_scope, filled.state.value
    seconds: list[float] = []
    for _ in range(3):
        started = time.process_time()
        for key in keys:
            scope.entry = key
            value()
        seconds.append(time.process_time() - started)
    return min(seconds) / len(keys) * 1e6


def scan_s(filled: FilledState) -> float:
    """Processor time of going through all keys in order: the least of three rounds."""
    seconds: list[float] = []
    for _ in range(3):
        started = time.process_time()
        assert sum(filled.backend.key_count(form.name) for form in filled.backend.forms()) > 0
        seconds.append(time.process_time() - started)
    return min(seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--megabytes", type=int, nargs="+", default=[10, 100])
    parser.add_argument("--settings", nargs="+", choices=list(SETTINGS), default=list(SETTINGS))
    arguments = parser.parse_args()
    cells: list[dict[str, Any]] = []
    for megabytes in arguments.megabytes:
        for setting in arguments.settings:
            cells.append(measure(setting, megabytes))
            print(cells[-1])
    record_result("state_increments", {"cells": cells})


if __name__ == "__main__":
    main()
