"""TriggerSteps: carries out the steps between the request for a checkpoint and its trigger messages.

Runs on the JobMaster's main thread. Source: Flink CheckpointCoordinator.startTriggeringCheckpoint.
"""

import logging
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, Final

from headrace.checkpoint.errors import CheckpointFailureReason
from headrace.cluster.job_master.checkpointing.collaborators import (
    CheckpointedCoordinators,
    CheckpointedTasks,
)
from headrace.cluster.job_master.checkpointing.protocol.coordinator_configuration import (
    CheckpointCoordinatorConfiguration,
)
from headrace.cluster.job_master.checkpointing.protocol.events import (
    CheckpointStepFailed,
    CoordinatorEvent,
    CoordinatorsSnapshotted,
    IdTaken,
    LocationCreated,
    PlanCalculated,
    TriggerFailed,
)
from headrace.cluster.job_master.checkpointing.protocol.pending_checkpoint import PendingCheckpoint
from headrace.cluster.job_master.checkpointing.protocol.plan import CheckpointRefusedError
from headrace.cluster.job_master.checkpointing.store.checkpoint_io import (
    CheckpointIds,
    CheckpointIo,
)
from headrace.core.barriers import (
    NEVER_UNALIGNED,
    AlignmentMode,
    CheckpointOptions,
    SnapshotKind,
)
from headrace.core.clock import Clock

_LOG = logging.getLogger(__name__)
_R = CheckpointFailureReason


class TriggerSteps:
    """Each step ends with an event for `handle`. `is_pending`: whether a checkpoint is still under way.

    `on_given_up` hears why none can be taken before tasks restart.
    """

    def __init__(
        self,
        tasks: CheckpointedTasks,
        coordinators: CheckpointedCoordinators,
        calls: CheckpointIo,
        ids: CheckpointIds,
        rules: CheckpointCoordinatorConfiguration,
        clock: Clock,
        *,
        handle: Callable[[CoordinatorEvent], None],
        spawn: Callable[[Coroutine[Any, Any, None], str], object],
        is_pending: Callable[[int], bool],
        on_storage_failed: Callable[[Exception], None],
        on_given_up: Callable[[str], None],
    ) -> None:
        self._tasks: Final = tasks
        self._coordinators: Final = coordinators
        self._calls: Final = calls
        self._ids: Final = ids
        self._rules: Final = rules
        self._clock: Final = clock
        self._handle: Final = handle
        self._spawn: Final = spawn
        self._is_pending: Final = is_pending
        self._on_storage_failed: Final = on_storage_failed
        self._on_given_up: Final = on_given_up
        self._waiting: deque[int] = deque()
        coordinators.when_quiet(self.snapshot_waiting)

    def calculate_plan(self, number: int) -> None:
        """Find out who takes part; TriggerFailed where no checkpoint can be taken now."""
        try:
            plan = self._tasks.plan()
        except CheckpointRefusedError as error:
            self._handle(TriggerFailed(number, error.reason, str(error)))
            if error.is_lasting:
                self._on_given_up(str(error))
        else:
            self._handle(PlanCalculated(number, plan))

    def take_id(self, number: int) -> None:
        """The next one of the lineage."""
        self._spawn(self._take_id(number), "take a checkpoint id")

    async def _take_id(self, number: int) -> None:
        try:
            checkpoint_id = await self._ids.take()
        except Exception as error:
            self._on_storage_failed(error)
            self._handle(TriggerFailed(number, _R.IO_EXCEPTION, str(error)))
        else:
            self._handle(IdTaken(number, checkpoint_id, self._clock.now_ms()))

    def create_location(self, checkpoint_id: int, kind: SnapshotKind, target: str) -> None:
        """Create the location of the checkpoint's files."""
        self._spawn(self._create_location(checkpoint_id, kind, target), "make a checkpoint's place")

    async def _create_location(self, checkpoint_id: int, kind: SnapshotKind, target: str) -> None:
        wanted = self._options(kind)
        try:
            options = await self._calls.call(
                "make a place", lambda: self._calls.store.locate(checkpoint_id, wanted, target)
            )
        except Exception as error:
            self._on_storage_failed(error)
            self._handle(CheckpointStepFailed(checkpoint_id, _R.IO_EXCEPTION, str(error)))
        else:
            self._handle(LocationCreated(checkpoint_id, options))

    def _options(self, kind: SnapshotKind) -> CheckpointOptions:
        alignment, timeout_ms = self._rules.alignment, self._rules.aligned_timeout_ms
        if kind.is_savepoint and alignment is not AlignmentMode.AT_LEAST_ONCE:
            # Nothing in flight is stored in what another version of the job may start from.
            alignment, timeout_ms = AlignmentMode.ALIGNED, NEVER_UNALIGNED
        return CheckpointOptions(kind, alignment, aligned_timeout_ms=timeout_ms)

    def snapshot_coordinators(self, checkpoint_id: int) -> None:
        """Take their part, as soon as nothing they said is on its way or held back for an earlier barrier."""
        self._waiting.append(checkpoint_id)
        self.snapshot_waiting()

    def snapshot_waiting(self) -> None:
        """Something has arrived, or was let through: perhaps it is time."""
        while self._waiting and self._coordinators.can_be_snapshotted:
            checkpoint_id = self._waiting.popleft()
            if not self._is_pending(checkpoint_id):
                continue
            try:
                states = self._coordinators.checkpoint(checkpoint_id)
            except Exception as error:
                text = f"an operator coordinator failed: {type(error).__name__}: {error}"
                _LOG.exception("checkpoint %d: %s", checkpoint_id, text)
                reason = _R.TRIGGER_CHECKPOINT_FAILURE
                self._handle(CheckpointStepFailed(checkpoint_id, reason, text))
            else:
                self._handle(CoordinatorsSnapshotted(checkpoint_id, states))

    def send_triggers(self, checkpoint: PendingCheckpoint) -> None:
        """To the tasks that no barrier would reach otherwise."""
        for attempt_id in checkpoint.plan.to_trigger:
            self._tasks.trigger_checkpoint(
                attempt_id, checkpoint.checkpoint_id, checkpoint.timestamp_ms, checkpoint.options
            )
