"""Event time out of a column: for whole batches at once, without touching rows."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.core.errors import RecordTypeError
from headrace.functions.watermarks import TimestampAssigner


class ColumnTimestampAssigner(TimestampAssigner):
    """Reads event time off the column of that name: a timestamp, a date, or epoch milliseconds as an integer.

    Example:
        >>> from headrace.functions.watermarks import WatermarkStrategy
        >>> by_time = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(
        ...     ColumnTimestampAssigner("time")
        ... )
    """

    def __init__(self, column: str) -> None:
        self.column = column

    def extract_timestamps(self, columns: pa.RecordBatch) -> npt.NDArray[np.int64]:
        """Return epoch ms of each row, shape (num_rows,); RecordTypeError for a null or an unfit column."""
        array = columns.column(self.column)
        kinds, arrow_type = pa.types, array.type
        if array.null_count:
            raise RecordTypeError(
                None, str(arrow_type), f"column '{self.column}' gives the event time and is null"
            )
        if kinds.is_timestamp(arrow_type):
            array = array.cast(pa.timestamp("ms", arrow_type.tz), safe=False)
        elif kinds.is_date(arrow_type):
            array = array.cast(pa.timestamp("ms"))
        elif not kinds.is_integer(arrow_type):
            reason = (
                f"column '{self.column}' is no time: take a timestamp, a date or epoch milliseconds"
            )
            raise RecordTypeError(array[0].as_py(), str(arrow_type), reason)
        return array.cast(pa.int64()).to_numpy()

    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        row = pa.RecordBatch.from_arrays([pa.array([value[self.column]])], names=[self.column])
        return int(self.extract_timestamps(row)[0])
