"""Fills keyed state of several kinds of values until it is of a given size, and reads it back: a process of its own.

    python -m tests.integration.state.growing_state BACKEND MEMORY STATE_BYTES DIRECTORY

Prints one line of JSON: `base_bytes`, resident before the first write; `peak_bytes`, the most since; `wrong_count`.
"""

import json
import random
import sys
from typing import Any

from headrace.core.config import Settings
from headrace.core.operator_spec import OperatorTypes
from headrace.core.process.process_memory import resident_memory_bytes
from headrace.core.record_batch import BatchType
from headrace.core.types.type_info import Types
from headrace.functions.state import ValueStateDescriptor
from headrace.state.operator_state_handler import OperatorStateHandler

STATE_COUNT = 12
"""Each state is a column family, which would have a cache and write buffers of its own."""
VALUE_BYTES = 32 << 10
_LOOK_EVERY = 20


def payload_of(key: int, state_index: int, noise: bytes) -> bytes:
    """Return what a key holds: another value for each key and state, that nothing can compress."""
    begin = (key * 7919 + state_index * 104_729) % (len(noise) - VALUE_BYTES)
    return key.to_bytes(8, "big") + noise[begin : begin + VALUE_BYTES - 8]


def measured(
    backend_name: str, memory: str, state_bytes: int, directory: str
) -> dict[str, int | str]:
    """Write, then read everything once."""
    long, payload = Types.LONG(), Types.PRIMITIVE_ARRAY(Types.BYTE())
    states = OperatorStateHandler(
        key_groups=range(128),
        max_parallelism=128,
        types=OperatorTypes((BatchType(long, long),), BatchType(long)),
        settings=Settings(
            {
                "state.backend.type": backend_name,
                "state.backend.rocksdb.memory.fixed-per-slot": memory,
            }
        ),
        scratch=directory,
    )
    backend = states.create_keyed_backend()
    handles: list[Any] = [
        backend.get_state(ValueStateDescriptor(f"state {index}", payload), backend.key_scope)
        for index in range(STATE_COUNT)
    ]
    noise = random.Random(1).randbytes(1 << 20)
    keys = range(state_bytes // VALUE_BYTES // STATE_COUNT)
    base_bytes = peak_bytes = resident_memory_bytes()
    wrong_count = 0
    for is_reading in (False, True):
        for key in keys:
            backend.set_current_key(key)
            for index, state in enumerate(handles):
                wanted = payload_of(key, index, noise)
                if is_reading:
                    wrong_count += state.value() != wanted
                else:
                    state.update(wanted)
            if key % _LOOK_EVERY == 0:
                peak_bytes = max(peak_bytes, resident_memory_bytes())
    states.close()
    return {"base_bytes": base_bytes, "peak_bytes": peak_bytes, "wrong_count": wrong_count}


if __name__ == "__main__":
    print(json.dumps(measured(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4])))
