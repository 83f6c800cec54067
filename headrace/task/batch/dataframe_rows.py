"""DataFrameRows: the rows of a DataFrame that Spark gives to the task of a stage, as a source reads them."""

from collections.abc import Callable, Iterator, Mapping
from typing import Final, Self

import pyarrow as pa

from headrace.core.ids import ExecutionAttemptId, JobId, OperatorId
from headrace.functions.ingest import Ingested, IngestedBatch, IngestedEnd


def dataframe_column(index: int) -> str:
    """Return the name that the column of a DataFrame at this place has on its way into a stage."""
    return f"c{index}"


class DataFrameRows:
    """Implements IngestDoor and Ingest: the rows of a DataFrame that Spark gives to this task are its one partition.

    Columns that nobody reads do not come; they are nulls.
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
        """Nothing waits for these rows but their one reader."""

    def forget_before(self, partition: int) -> None:
        """Do nothing: there is only one attempt."""

    def close(self) -> None:
        """Spark ends the rows."""
