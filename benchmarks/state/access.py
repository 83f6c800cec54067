"""What does one access to keyed state cost, on the heap and in RocksDB?

Microseconds per access over 300,000 keys in turn, values of 100 bytes: `write`, `read`, `read_modify_write` of a
value, and `append` to a list of its key.

    python -m benchmarks.state.access [--keys 300000] [--backends heap rocksdb]
"""

import argparse
import time
from collections.abc import Callable
from typing import Any

from benchmarks.record import record_result
from benchmarks.state.filled import BACKENDS, VALUE_BYTES, FilledState
from headrace.core.types.type_info import Types
from headrace.functions.state import ListStateDescriptor


def microseconds(filled: FilledState, key_count: int, access: Callable[[int], Any]) -> float:
    """Return what one access costs, over all keys in turn."""
    scope = filled.backend.key_scope
    started = time.perf_counter()
    for key in range(key_count):
        scope.entry = key
        access(key)
    return (time.perf_counter() - started) / key_count * 1e6


def measure(backend: str, key_count: int) -> dict[str, float]:
    """Return the figures of one backend."""
    payload = bytes(VALUE_BYTES)
    with FilledState(backend) as filled:
        state = filled.state
        descriptor = ListStateDescriptor("list", Types.LONG())
        numbers: Any = filled.backend.get_state(descriptor, filled.backend.key_scope)
        figures = {"write_us": microseconds(filled, key_count, lambda key: state.update(payload))}
        figures["read_us"] = microseconds(filled, key_count, lambda key: state.value())
        figures["read_modify_write_us"] = microseconds(
            filled, key_count, lambda key: state.update(state.value()[::-1])
        )
        figures["append_us"] = microseconds(filled, key_count, numbers.add)
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--keys", type=int, default=300_000)
    parser.add_argument(
        "--backends", nargs="+", choices=list(BACKENDS), default=["heap", "rocksdb"]
    )
    arguments = parser.parse_args()
    figures: dict[str, float] = {}
    for backend in arguments.backends:
        found = measure(backend, arguments.keys)
        print(backend, {name: round(value, 2) for name, value in found.items()})
        figures |= {f"{backend}_{name}": value for name, value in found.items()}
    record_result("state_access", figures)


if __name__ == "__main__":
    main()
