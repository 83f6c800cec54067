"""Ingest: gives a source reader the rows that are pushed to it from outside, such as those of a DataFrame.

The TaskManager's data plane implements it; every row of a partition arrives exactly once and in order.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

import pyarrow as pa

from headrace.core.ids import ExecutionAttemptId, JobId, OperatorId


@dataclass(frozen=True, slots=True)
class IngestedBatch:
    """Rows [row_offset, row_offset + batch.num_rows) of a partition, as pushed by the given attempt."""

    partition: int
    attempt: int
    row_offset: int
    batch: pa.RecordBatch

    def behind(self, row_count: int) -> "IngestedBatch":
        """Return the batch without its first rows."""
        return replace(
            self, row_offset=self.row_offset + row_count, batch=self.batch.slice(row_count)
        )


@dataclass(frozen=True, slots=True)
class IngestedEnd:
    """The end of a partition: it has `row_count` rows, and all of them have arrived."""

    partition: int
    row_count: int


Ingested = IngestedBatch | IngestedEnd


class Ingest(Protocol):
    """Elements pushed to one source subtask from outside; used by the subtask's thread."""

    def poll(self) -> Ingested | None:
        """Return the next element, or None if none waits; grants the pusher credit for another batch."""
        ...

    def pause(self, partitions: frozenset[int]) -> None:
        """Pause these partitions and resume all others: pushers of paused ones get no credit meanwhile."""
        ...

    def forget_before(self, partition: int) -> None:
        """Forget the partitions with smaller numbers, which have all ended and will not be pushed again."""
        ...

    def close(self) -> None:
        """Refuse pushers from now on. Idempotent, any thread."""
        ...


class IngestDoor(Protocol):
    """Registry of the source subtasks of a TaskManager to which rows can be pushed."""

    def register(
        self,
        job_id: JobId,
        operator_id: OperatorId,
        subtask_index: int,
        attempt: ExecutionAttemptId,
        on_data: Callable[[], None],
        accepted_row_counts: Mapping[int, int],
    ) -> Ingest:
        """Accept rows for one source subtask; an older attempt is closed.

        `on_data` is called from another thread when the first element waits. `accepted_row_counts`: by partition, the
        number of rows in the checkpoint, so that pushers continue after them.
        """
        ...
