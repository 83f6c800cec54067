"""HeldRows: batches of one stream that wait until they are worth a vectorised step. Pure."""

from typing import Final

import numpy as np
import pyarrow as pa

from headrace.core.record_batch import Timestamps

HELD_ROWS_MAX: Final = 131_072
"""Above this the fixed cost of a step, some hundred microseconds, weighs little; all columns still fit in the cache."""


class HeldRows:
    """Data columns and timestamps, in order of arrival."""

    def __init__(self) -> None:
        self._columns: list[pa.RecordBatch] = []
        self._times: list[Timestamps] = []
        self.row_count = 0

    @property
    def are_enough(self) -> bool:
        """Whether they should be taken now."""
        return self.row_count >= HELD_ROWS_MAX

    def add(self, columns: pa.RecordBatch, timestamps: Timestamps) -> None:
        """Put a batch behind the others."""
        self._columns.append(columns)
        self._times.append(timestamps)
        self.row_count += columns.num_rows

    def take(self) -> tuple[pa.Table, Timestamps]:
        """Return all rows (at least one batch) and begin anew."""
        columns, self._columns = self._columns, []
        times, self._times = self._times, []
        self.row_count = 0
        return pa.Table.from_batches(columns), times[0] if len(times) == 1 else np.concatenate(
            times
        )
