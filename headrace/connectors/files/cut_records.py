"""CutRecords: records of a split, in batches of as many rows as are wanted.

A format gives batches as it likes, and knows positions between them. Where fewer rows are wanted the rest of one waits
here, and the position is that before the batch, with the number of records behind it that were handed on: formats give
the same records from the same position. Source: Flink CheckpointedPosition, RecordsAndPosition.
"""

from headrace.connectors.files.reader_format import FileRecords
from headrace.connectors.files.splits import FileSplit
from headrace.core.record_batch import RecordBatch


class CutRecords:
    """Of one split that was just opened as `records`."""

    def __init__(self, records: FileRecords, split: FileSplit) -> None:
        self._records = records
        self._split = split
        # Behind the split's position: records that were handed on, and before that those to leave out.
        self._position = split.position
        self._skipped_count = self._left_out_count = split.skipped_count
        self._rest: RecordBatch | None = None

    @property
    def as_read(self) -> FileSplit:
        """The split as far as its records were handed on."""
        return self._split.at(self._position, self._skipped_count)

    @property
    def unread_bytes(self) -> int | None:
        """See FileRecords."""
        return self._records.unread_bytes

    def next_batch(self, row_count_max: int) -> RecordBatch | None:
        """Return the next records (maybe none), at most so many, or None after the last ones."""
        batch, self._rest = self._rest, None
        if batch is None:
            batch = self._records.next_batch()
            if batch is None:
                return None
            if self._left_out_count:
                left_out = min(self._left_out_count, batch.num_rows)
                self._left_out_count -= left_out
                batch = batch.slice(left_out)
        if batch.num_rows > row_count_max:
            self._skipped_count += row_count_max
            self._rest = batch.slice(row_count_max)
            return batch.slice(0, row_count_max)
        if not self._left_out_count:
            # Right behind a batch of the format's. Records that are still to be left out count from the old position.
            self._position, self._skipped_count = self._records.position, 0
        return batch

    def close(self) -> None:
        """See FileRecords."""
        self._records.close()
