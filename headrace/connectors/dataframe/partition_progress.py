"""PartitionProgress: how far one pushed partition has come, so that every row counts once. Pure.

The Spark task that computes a partition numbers its rows. A second attempt of that task sends them again, cut into
other batches perhaps: what was accepted is skipped by row, and an older attempt is not listened to any more.
"""

from dataclasses import dataclass


class PushedRowsError(Exception):
    """A partition's rows do not follow each other as they must."""


@dataclass
class PartitionProgress:
    """Of one partition: rows accepted, the newest attempt heard of, and whether its end was reached."""

    partition: int
    accepted_row_count: int = 0
    attempt: int = 0
    is_finished: bool = False

    def rows_to_skip(self, attempt: int, row_offset: int, row_count: int) -> int:
        """Take a batch of `row_count` rows from `row_offset` on; return how many at its beginning are not new.

        `row_count` comes back where nothing is new. PushedRowsError where rows are missing before the batch.
        """
        if attempt < self.attempt or self.is_finished:
            return row_count
        self.attempt = attempt
        if row_offset > self.accepted_row_count:
            raise PushedRowsError(
                f"partition {self.partition}: rows {self.accepted_row_count} to {row_offset - 1} did not come"
            )
        skipped = min(row_count, self.accepted_row_count - row_offset)
        self.accepted_row_count = max(self.accepted_row_count, row_offset + row_count)
        return skipped

    def end(self, row_count: int) -> None:
        """Take the end of the partition. PushedRowsError where it has another number of rows than came."""
        if self.is_finished:
            return
        if row_count != self.accepted_row_count:
            raise PushedRowsError(
                f"partition {self.partition}: {row_count} rows were sent and {self.accepted_row_count} came; is the "
                "DataFrame computed differently each time?"
            )
        self.is_finished = True
