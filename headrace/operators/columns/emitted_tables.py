"""How a table leaves an operator: as batches, each with the timestamps of its own rows."""

from typing import Final

import pyarrow as pa

from headrace.core.record_batch import BatchType, RecordBatch, Timestamps
from headrace.operators.operator import Output

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
