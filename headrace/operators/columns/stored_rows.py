"""How a table leaves an operator: as batches, each with the timestamps of its own rows.

Rows that came too late: they are dropped, and counted with those that they stand for.

When rows that have come are brought together with those that are in state already. Pure.

Rows with the hash of their key beside their data, as ColumnarRows stores them. Pure.
"""

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.core.record_batch import KEY_HASH_COLUMN, BatchType, RecordBatch, Timestamps
from headrace.functions.specs.columnar_specs import ROWS
from headrace.metrics.instruments import Counter
from headrace.operators.runtime.operator import Output

TABLE_ROWS_MAX: Final = 65_536
"""Results of windows that are due together go out in tables of about so many rows at most."""


def emit_table(
    table: pa.Table, times: Timestamps | None, batch_type: BatchType, output: Output
) -> None:
    """Emit the rows of a table, whose `times` have shape (num_rows,), a batch for each of its chunks.

    Also a table whose chunks were combined may have several: of texts one chunk holds no more than 2 GB.
    """
    begin = 0
    for columns in table.to_batches():
        end = begin + columns.num_rows
        own_times = None if times is None else times[begin:end]
        output.emit(RecordBatch.of_columns(batch_type, columns, own_times))
        begin = end


def without_late(rows: pa.Table, is_late: npt.NDArray[np.bool_], late_count: Counter) -> pa.Table:
    """Return the rows that are not late, and add to `late_count` the `$rows` of the others.

    `is_late` has shape (num_rows,).
    """
    if not is_late.any():
        return rows
    stood_for: npt.NDArray[np.int64] = rows.column(ROWS).to_numpy()
    late_count.inc(int(stood_for[is_late].sum()))
    return rows.filter(pa.array(~is_late))


_LOOSE_ROWS_MIN: Final = 65_536


def are_enough_to_settle(loose_rows: int, settled_rows: int) -> bool:
    """Whether so many loose rows wait that a vectorised step is worth it, and at least as many as are in state."""
    return loose_rows >= max(_LOOSE_ROWS_MIN, settled_rows)


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
