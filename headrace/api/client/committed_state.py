"""CommittedState: the tables of a running job's last checkpoint, which is kept while it is read.

Import this module only to read such state, because it loads the state processor.
"""

import contextlib
from collections.abc import Generator, Sequence
from datetime import timedelta
from typing import Any

import pyarrow as pa

from headrace.checkpoint.metadata import CompletedCheckpoint
from headrace.checkpoint.storage.checkpoint_storage import load_snapshot
from headrace.core.clock import Clock
from headrace.core.config import Settings
from headrace.core.ids import JobId
from headrace.state_processor.selection import PinnedReader, held, missing_explained
from headrace.state_processor.table_query import TableQuery


class CommittedState:
    """One complete snapshot, taken at one moment for the whole job; made by `JobState.committed`."""

    def __init__(self, snapshot: CompletedCheckpoint, clock: Clock, job_id: JobId) -> None:
        self._snapshot = snapshot
        self._job_id = job_id
        self._clock = clock

    @classmethod
    @contextlib.contextmanager
    def kept(
        cls, uri: str, settings: Settings, clock: Clock, job_id: JobId
    ) -> "Generator[CommittedState]":
        """Open the snapshot in a folder and keep it under a lease while the block runs.

        `job_id`: the job whose state is read. Raises SnapshotSubsumedError or MetadataError.
        """
        with held(uri, clock=clock), missing_explained(uri):
            yield cls(load_snapshot(uri, settings), clock, job_id)

    @property
    def uri(self) -> str:
        """Return the snapshot's folder, which `spark.read.format("headrace-state")` and `headrace run -s` take."""
        return self._snapshot.uri

    @property
    def checkpoint_id(self) -> int:
        """Return the checkpoint's id."""
        return self._snapshot.checkpoint_id

    @property
    def is_own(self) -> bool:
        """Return whether this job took the snapshot.

        If not, the job started from it and has completed none of its own yet.
        """
        return self._snapshot.metadata.job_id == self._job_id

    @property
    def taken_at_ms(self) -> int:
        """Return the time at which the snapshot was triggered, epoch ms."""
        return self._snapshot.metadata.timestamp_ms

    @property
    def age(self) -> timedelta:
        """Return the time since the trigger, by this machine's clock."""
        return timedelta(milliseconds=max(0, self._clock.now_ms() - self.taken_at_ms))

    def read(
        self,
        operator: str | None = None,
        state: str | None = None,
        *,
        table: str = "keyed",
        keys: Sequence[Any] | None = None,
        include_expired: bool = False,
        unpickle: bool = False,
    ) -> pa.Table:
        """Return all rows of one table of `headrace-state`, such as `keyed`, `operators` or `snapshot`.

        `operator` and `state` may be omitted if there is only one; the other parameters are those of `JobState.live`.
        Raises UnknownStateError, NativeStateError (RocksDB's own files have no rows to read) or
        CheckpointCorruptedError.
        """
        query = TableQuery(
            table,
            operator,
            state,
            unpickle,
            keys=None if keys is None else tuple(keys),
            includes_expired=include_expired,
        )
        return query.open(self._snapshot).read_all(PinnedReader(self.uri))

    def __repr__(self) -> str:
        seconds = self.age.total_seconds()
        return f"CommittedState(checkpoint {self.checkpoint_id}, {seconds:.1f} s old, {self.uri})"
