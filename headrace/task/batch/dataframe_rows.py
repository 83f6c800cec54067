"""DataFrameRows: gives the rows of a DataFrame from Spark to the source in a stage's task."""

from collections.abc import Callable, Iterator, Mapping
from typing import Final, Self

import pyarrow as pa

from headrace.core.ids import ExecutionAttemptId, JobId, OperatorId
from headrace.functions.ingest import Ingested, IngestedBatch, IngestedEnd


def dataframe_column(index: int) -> str:
    """Return the column name that a stage uses for the DataFrame's column at `index`."""
    return f"c{index}"


class DataFrameRows:
    """Source input with a DataFrame's rows from Spark as its only partition. Implements IngestDoor and Ingest.

    Columns that no operator reads are not transferred; they are nulls.
    """

    def __init__(self, batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> None:
        self._batches: Final = batches
        self._schema: Final = schema
        self._row_count = 0
        self._partition = 0

    def register(
        self,
        job_id: JobId,
        operator_id: OperatorId,
        subtask_index: int,
        attempt: ExecutionAttemptId,
        on_data: Callable[[], None],
        accepted_row_counts: Mapping[int, int],
    ) -> Self:
        self._partition = subtask_index
        return self

    def poll(self) -> Ingested | None:
        arrow = next(self._batches, None)
        if arrow is None:
            return IngestedEnd(self._partition, self._row_count)
        names = arrow.schema.names
        columns = [
            arrow.column(name) if name in names else pa.nulls(arrow.num_rows, field.type)
            for name, field in zip(
                map(dataframe_column, range(len(self._schema))), self._schema, strict=True
            )
        ]
        rows = pa.RecordBatch.from_arrays(columns, names=self._schema.names)
        start, self._row_count = self._row_count, self._row_count + arrow.num_rows
        return IngestedBatch(self._partition, 0, start, rows)

    def pause(self, partitions: frozenset[int]) -> None:
        """Do nothing: these rows have a single reader."""

    def forget_before(self, partition: int) -> None:
        """Do nothing: there is only one attempt."""

    def close(self) -> None:
        """Do nothing: Spark ends the rows."""
