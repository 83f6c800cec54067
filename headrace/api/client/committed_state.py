"""CommittedState: the tables of a running job's last checkpoint, which is kept while it is read.

Only programs that read one import this module, because it loads the state processor.
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
    """One complete snapshot, as of one moment of the whole job; made by `JobState.committed`."""

    def __init__(self, snapshot: CompletedCheckpoint, clock: Clock, job_id: JobId) -> None:
        self._snapshot = snapshot
        self._job_id = job_id
        self._clock = clock

    @classmethod
    @contextlib.contextmanager
    def kept(
        cls, uri: str, settings: Settings, clock: Clock, job_id: JobId
    ) -> "Generator[CommittedState]":
        """Open the snapshot in a folder under a lease, for the block. SnapshotSubsumedError, MetadataError.

        `job_id`: the job that it is read of.
        """
        with held(uri, clock=clock), missing_explained(uri):
            yield cls(load_snapshot(uri, settings), clock, job_id)

    @property
    def uri(self) -> str:
        """Return its folder: the `path` for `spark.read.format("headrace-state")` and for `headrace run -s`."""
        return self._snapshot.uri

    @property
    def checkpoint_id(self) -> int:
        """Return its id."""
        return self._snapshot.checkpoint_id

    @property
    def is_own(self) -> bool:
        """Return whether this job took it. If not, the job started from it and has completed none of its own yet."""
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

        `operator` and `state` may be left out where there is one only; the rest is as in `JobState.live`.
        UnknownStateError, NativeStateError (RocksDB's own files have no rows to read), CheckpointCorruptedError.
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
