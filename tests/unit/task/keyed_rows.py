"""Rows that are numbers which say who sent them: sender * 1000 + count. Keys are the numbers modulo KEY_COUNT."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from headrace.core.key_groups import subtasks_of
from headrace.core.key_hash import hash_array
from headrace.core.record_batch import BatchType, RecordBatch
from headrace.core.types.type_info import Types

KEY_COUNT = 5
MAX_PARALLELISM = 128
KEYED = BatchType(Types.LONG(), Types.LONG())


def rows_of(values: Sequence[int]) -> RecordBatch:
    columns = pa.RecordBatch.from_arrays([pa.array(values, pa.int64())], names=["value"])
    keys = pa.array([value % KEY_COUNT for value in values], pa.int64())
    batch = RecordBatch.of_columns(BatchType(Types.LONG()), columns)
    return batch.with_keys(Types.LONG(), hash_array(keys), keys_array=keys)


def order_of(values: Sequence[int]) -> dict[tuple[int, int], list[int]]:
    """By sender and key, the counts in the order of processing."""
    found: dict[tuple[int, int], list[int]] = {}
    for value in values:
        found.setdefault((value // 1000, value % KEY_COUNT), []).append(value % 1000)
    return found


def owner_of(value: int, parallelism: int) -> int:
    """The subtask that has the key of a row."""
    hashes = hash_array(pa.array([value % KEY_COUNT], pa.int64()))
    return int(np.asarray(subtasks_of(hashes, parallelism, MAX_PARALLELISM))[0])
