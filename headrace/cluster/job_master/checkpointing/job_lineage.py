"""JobLineage: finds the checkpoint from which a job starts or restarts, and ends its lineage with the job.

Runs on the JobMaster's main thread. Source: Flink CheckpointCoordinator.restoreLatestCheckpointedState and shutdown.
"""

import asyncio
import functools
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from headrace.checkpoint.metadata import CompletedCheckpoint
from headrace.checkpoint.options import RETENTION
from headrace.cluster.job_master.checkpointing.checkpoint_statistics_tracker import (
    CheckpointStatisticsTracker,
)
from headrace.cluster.job_master.checkpointing.commits.sink_commits import SinkCommits
from headrace.cluster.job_master.checkpointing.protocol.checkpoint_protocol import (
    CheckpointProtocol,
)
from headrace.cluster.job_master.checkpointing.store.checkpoint_io import (
    CheckpointIdCounter,
    CheckpointIo,
    DeletionLeft,
)
from headrace.core.errors import HeadraceError
from headrace.core.ids import JobId
from headrace.core.lifecycle import JobStatus

_LOG = logging.getLogger(__name__)


class JobLineage:
    """Completed checkpoints of one job, in its store. `is_settled` is set while no publication is in progress."""

    def __init__(
        self,
        job_id: JobId,
        io: CheckpointIo,
        ids: CheckpointIdCounter,
        commits: SinkCommits,
        is_settled: asyncio.Event,
        protocol: CheckpointProtocol,
        statistics: CheckpointStatisticsTracker,
    ) -> None:
        self._job_id: Final = job_id
        self._io: Final = io
        self._ids: Final = ids
        self._commits: Final = commits
        self._is_settled: Final = is_settled
        self._protocol: Final = protocol
        self._statistics: Final = statistics
        self._is_refused = False
        self.deletion_left: DeletionLeft | None = None
        """Files that the storage has not deleted at the job's end; None if all are deleted."""

    async def recover(self) -> CompletedCheckpoint | None:
        """Take over the job's lineage, commit its open output, and return the checkpoint from which the job starts.

        None if it starts anew. CheckpointError if it must not start; also raises the errors of SinkCommits.restore.
        """
        restored = await self._io.call("recover", self._io.store.recover)
        await self._commits.restore(None if restored is None else restored.metadata)
        return self._starts_from(restored)

    def refused(self) -> None:
        """Recommend no checkpoint at the job's end, because the job cannot start from the requested one."""
        self._is_refused = True

    async def latest(self) -> CompletedCheckpoint | None:
        """Return the checkpoint from which the job, or a part of it, restarts.

        Waits until no publication is pending and all output is committed.
        """
        await self._is_settled.wait()
        await self._commits.resume()
        return self._starts_from(await self.newest())

    async def newest(self) -> CompletedCheckpoint | None:
        """Return the newest checkpoint in the store, from which the job would restart, without changing anything."""
        return await self._io.call("latest", self._io.store.latest)

    async def close(
        self,
        status: JobStatus,
        *,
        is_given_up: bool = False,
        before_deletion: Callable[[bool], Awaitable[None]] | None = None,
    ) -> None:
        """End the lineage with the job: commit all published output if its sinks can, then close the store.

        `is_given_up`: its cluster ends, although neither the job nor its user requested that. `before_deletion` is
        awaited before the first checkpoint is deleted, with True if all output is committed.
        """
        await self._is_settled.wait()
        await self._ids.close()
        is_committed = True
        if status.is_globally_terminal_state():
            try:
                await self._commits.await_all()
            except HeadraceError as error:
                is_committed = False
                _LOG.error("job %s ends with output not committed: %s", self._job_id, error)
        await self._commits.close()
        if before_deletion is not None:
            await before_deletion(is_committed)
        was_cancelled = status is JobStatus.CANCELED
        kept_as = JobStatus.SUSPENDED if is_given_up and was_cancelled else status
        close = functools.partial(self._io.store.close, kept_as, keeps_latest=not is_committed)
        left = await self._io.call("close", close)
        if left.not_deleted:
            self.deletion_left = self._io.left_to_delete(left, close)
        self._statistics.retained(self._io.store.retained_ids)
        if self._is_refused:
            # The error names the checkpoint from which the job may continue, and how.
            return
        if left.kept_uri and status is JobStatus.SUSPENDED:
            _LOG.warning(
                "job %s is suspended, and its last checkpoint is kept: the next leader continues from it, if there is "
                "one; otherwise start the job with -s %s",
                self._job_id,
                left.kept_uri,
            )
        elif left.kept_uri:
            _LOG.warning(
                "job %s has ended (%s), and its last checkpoint is kept: continue from it with -s %s",
                self._job_id,
                "its cluster ends" if kept_as is JobStatus.SUSPENDED else status.name,
                left.kept_uri,
            )
        elif left.has_deleted and was_cancelled:
            _LOG.warning(
                "job %s is cancelled, and its checkpoints are deleted: no job can continue from them; "
                "-D %s=RETAIN_ON_CANCELLATION keeps them, and a savepoint is always kept",
                self._job_id,
                RETENTION.key,
            )

    def _starts_from(self, restored: CompletedCheckpoint | None) -> CompletedCheckpoint | None:
        if restored is not None:
            self._protocol.restored(restored.checkpoint_id)
            self._statistics.restored(restored)
        return restored
