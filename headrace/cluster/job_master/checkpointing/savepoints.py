"""Savepoints: takes snapshots at the request of a user, from a running job or to stop it.

To stop a job with a savepoint, its sources stop after the savepoint's barrier, and all tasks wait for exactly that
savepoint. Once it is complete its output is committed and the job can only end: continuing from an older checkpoint
would write that output twice. Source: Flink SchedulerBase.triggerSavepoint, StopWithSavepointTerminationHandler.
"""

import asyncio
from typing import Final

from headrace.cluster.job_master.checkpointing.checkpoint_coordinator import CheckpointCoordinator
from headrace.cluster.job_master.scheduler.scheduler import Scheduler
from headrace.core.barriers import SavepointFormatType, SnapshotKind
from headrace.core.lifecycle import JobStatus
from headrace.gateways.errors import CheckpointFailedError


class Savepoints:
    """Savepoints of one JobMaster; `ended` gets the job's last status."""

    def __init__(
        self,
        scheduler: Scheduler,
        checkpointing: CheckpointCoordinator,
        ended: asyncio.Future[JobStatus],
    ) -> None:
        self._scheduler: Final = scheduler
        self._checkpointing: Final = checkpointing
        self._ended: Final = ended
        self._is_stopping = False

    @property
    def is_stopping(self) -> bool:
        """Return whether the job is being stopped with a savepoint, for which its tasks wait."""
        return self._is_stopping

    async def trigger_checkpoint(self, *, is_full: bool) -> int:
        """Take an extra checkpoint and return its id. CheckpointFailedError if that fails.

        `is_full`: the checkpoint refers to no file of an earlier one.
        """
        self._refuse_unless_running("checkpoints")
        kind = SnapshotKind.FULL_CHECKPOINT if is_full else SnapshotKind.CHECKPOINT
        return (await self._checkpointing.trigger(kind)).checkpoint_id

    async def take_before_restart(self) -> None:
        """Take a checkpoint, so that a restart repeats little. CheckpointFailedError if it fails.

        Return at once without periodic checkpoints, or while the job is being stopped with a savepoint.
        """
        if self._checkpointing.is_periodic and not self._is_stopping:
            await self.trigger_checkpoint(is_full=False)

    async def trigger(self, target: str, format_type: SavepointFormatType) -> str:
        """Take a savepoint below `target`, or the folder in the settings; return its URI.

        CheckpointFailedError if it fails.
        """
        self._refuse_unless_running()
        snapshot = await self._checkpointing.trigger(
            SnapshotKind.SAVEPOINT.in_format(format_type), target
        )
        return snapshot.uri

    async def stop(self, target: str, format_type: SavepointFormatType, *, is_drained: bool) -> str:
        """Take a savepoint and end the job with it; return its URI when the job is FINISHED.

        `is_drained`: event time ends before the savepoint, so that every window fires; no job can continue from it.
        CheckpointFailedError if it fails.
        """
        self._refuse_unless_running()
        if self._is_stopping:
            raise CheckpointFailedError("the job is being stopped with a savepoint already")
        kind = SnapshotKind.SAVEPOINT_TERMINATE if is_drained else SnapshotKind.SAVEPOINT_SUSPEND
        self._is_stopping = True
        self._checkpointing.suspend()
        try:
            snapshot = await self._checkpointing.trigger(kind.in_format(format_type), target)
        except BaseException:
            self._is_stopping = False
            if self._scheduler.status is JobStatus.RUNNING:
                self._checkpointing.resume()
            raise
        status = await asyncio.shield(self._ended)
        if status is not JobStatus.FINISHED:
            raise CheckpointFailedError(
                f"the savepoint {snapshot.uri} is complete, but the job is {status.name}: its output may not be "
                "committed; start a job from the savepoint once to commit it"
            )
        return snapshot.uri

    def _refuse_unless_running(self, what: str = "savepoints") -> None:
        if self._scheduler.status is not JobStatus.RUNNING:
            raise CheckpointFailedError(
                f"the job is {self._scheduler.status.name}: {what} can only be taken of running jobs"
            )
