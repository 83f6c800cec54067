"""Rows with the hash of their key beside their data, as ColumnarRows stores them. Pure."""

from typing import Final

import pyarrow as pa

from headrace.core.record_batch import KEY_HASH_COLUMN, RecordBatch

KEY_HASH_FIELD: Final = pa.field(KEY_HASH_COLUMN, pa.int32())
"""The column of hashes, in schemas of what is kept."""


def table_with_hashes(batch: RecordBatch, schema: pa.Schema, *more: pa.Array) -> pa.Table:
    """Return the data columns of a keyed batch and `more` columns behind them as a table of `schema`.

    The hashes of keys stand where `schema` has KEY_HASH_FIELD.
    """
    assert batch.key_hashes is not None
    arrays = [*batch.columns().columns, *more]
    arrays.insert(schema.get_field_index(KEY_HASH_COLUMN), pa.array(batch.key_hashes))
    return pa.Table.from_arrays(arrays, schema=schema)
