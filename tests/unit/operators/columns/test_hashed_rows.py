"""Rows with the hash of their key: where the schema of what is kept says it stands."""

import numpy as np
import pyarrow as pa
import pytest

from headrace.core.record_batch import BatchType, RecordBatch
from headrace.core.types.type_info import Types
from headrace.operators.columns.stored_rows import KEY_HASH_FIELD, table_with_hashes

USER = pa.field("user", pa.string())
COUNT = pa.field("count", pa.int64())
TIME = pa.field("$time", pa.int64())
HASHES = np.array([7, -7], dtype=np.int32)
BATCH = RecordBatch.of_columns(
    BatchType(Types.ROW_NAMED(["user", "count"], [Types.STRING(), Types.LONG()])),
    pa.record_batch(
        [pa.array(["a", "b"]), pa.array([1, 2], pa.int64())], schema=pa.schema([USER, COUNT])
    ),
)
KEYED = BATCH.with_keys(Types.STRING(), HASHES, keys=["a", "b"])


@pytest.mark.parametrize("place", [0, 1, 2])
def test_hashes_stand_where_the_schema_has_them(place: int) -> None:
    schema = pa.schema([USER, COUNT, TIME]).insert(place, KEY_HASH_FIELD)
    table = table_with_hashes(KEYED, schema, pa.array([10, 20]))
    assert table.schema == schema
    assert table.to_pylist() == [
        {"user": "a", "count": 1, "$time": 10, "$key_hash": 7},
        {"user": "b", "count": 2, "$time": 20, "$key_hash": -7},
    ]


def test_rows_without_keys_are_not_kept() -> None:
    with pytest.raises(AssertionError):
        table_with_hashes(BATCH, pa.schema([USER, COUNT, KEY_HASH_FIELD]))
