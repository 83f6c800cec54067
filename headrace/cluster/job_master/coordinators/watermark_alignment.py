"""WatermarkAlignment: keeps the sources of a group from reading too far ahead of the slowest one.

    reader ── WatermarkReported, every interval ──► coordinator ──► WatermarkAlignment (pure, one per job)
    reader ◄── WatermarkBound ──────────────────────────┘

Each report is answered with the current bound, so that a job with n readers costs n messages each way per
interval. Source: Flink SourceCoordinator.announceCombinedWatermark, CoordinatorStore.
"""

from dataclasses import replace
from typing import Final

from headrace.cluster.job_master.coordinators.operator_coordinator import (
    CheckpointedCoordinator,
    CoordinatorContext,
    CoordinatorFactories,
    OperatorCoordinator,
)
from headrace.core.elements import MAX_WATERMARK
from headrace.core.errors import NotInstalledError
from headrace.core.ids import ExecutionAttemptId, OperatorId
from headrace.core.operator_events import (
    AlignedSource,
    ReaderProgress,
    WatermarkBound,
    WatermarkReported,
    decode_aligned_event,
    decode_aligned_source,
    encode_alignment_event,
    wrap_own_event,
)
from headrace.core.shuffle_descriptors import TaskManagerLocation

AlignedReader = tuple[OperatorId, int]
"""Operator id of a source and the index of its subtask."""


class WatermarkAlignment:
    """Computes the minimum of the readers' watermarks in each group, and the bound for all readers. Pure.

    Readers that are idle, have finished or have not reported yet do not hold back others.
    """

    def __init__(self) -> None:
        self._groups: dict[str, dict[AlignedReader, int]] = {}

    def reported(self, group: str, reader: AlignedReader, report: WatermarkReported) -> None:
        """Record the progress that a reader reports."""
        if report.progress is ReaderProgress.ACTIVE:
            self._groups.setdefault(group, {})[reader] = report.watermark_ms
        else:
            self.forgotten(group, reader)

    def forgotten(self, group: str, reader: AlignedReader) -> None:
        """Forget a reader that is gone or no longer counts; no effect if it is unknown."""
        self._groups.get(group, {}).pop(reader, None)

    def bound_ms(self, group: str, max_drift_ms: int) -> int | None:
        """Return the largest watermark up to which a reader may read; None while no reader holds back the group."""
        watermarks = self._groups.get(group)
        return min(min(watermarks.values()) + max_drift_ms, MAX_WATERMARK) if watermarks else None


class AlignedCoordinators:
    """Makes the coordinators of a job's aligned sources; `known` has the coordinators that they may wrap."""

    def __init__(self, known: CoordinatorFactories) -> None:
        self._known: Final = known
        self._alignment: Final = WatermarkAlignment()

    def create(self, context: CoordinatorContext, payload: bytes) -> OperatorCoordinator:
        source = decode_aligned_source(payload)
        return AlignedCoordinator(context, source, self._alignment, self._own(context, source))

    def _own(
        self, context: CoordinatorContext, source: AlignedSource
    ) -> OperatorCoordinator | None:
        if source.own_coordinator is None:
            return None
        name, payload = source.own_coordinator
        factory = self._known.get(name)
        if factory is None:
            raise NotInstalledError(
                f"operator '{context.operator_name}' needs the coordinator '{name}', which is not installed on the "
                "driver"
            )

        def send(subtask_index: int, event: bytes) -> None:
            context.send_event(subtask_index, wrap_own_event(event))

        return factory(replace(context, send_event=send), payload)


class AlignedCoordinator:
    """Answers the reports of one source's readers, and passes all else to the source's own coordinator, if any.

    Implements CheckpointedCoordinator: alignment itself has no state.
    """

    def __init__(
        self,
        context: CoordinatorContext,
        source: AlignedSource,
        alignment: WatermarkAlignment,
        own: OperatorCoordinator | None,
    ) -> None:
        self._context: Final = context
        self._source: Final = source
        self._alignment: Final = alignment
        self._own: Final = own
        self._own_checkpointed: Final = own if isinstance(own, CheckpointedCoordinator) else None

    def start(self) -> None:
        if self._own is not None:
            self._own.start()

    def subtask_ready(self, attempt_id: ExecutionAttemptId, location: TaskManagerLocation) -> None:
        if self._own is not None:
            self._own.subtask_ready(attempt_id, location)

    def subtask_failed(self, attempt_id: ExecutionAttemptId) -> None:
        """Forget the watermark of the attempt, because its successor starts before it."""
        self._alignment.forgotten(self._source.group, self._reader(attempt_id))
        if self._own is not None:
            self._own.subtask_failed(attempt_id)

    def handle_event(self, attempt_id: ExecutionAttemptId, payload: bytes) -> None:
        event = decode_aligned_event(payload)
        if isinstance(event, bytes):
            assert self._own is not None
            self._own.handle_event(attempt_id, event)
            return
        assert isinstance(event, WatermarkReported)
        source = self._source
        self._alignment.reported(source.group, self._reader(attempt_id), event)
        if event.progress is not ReaderProgress.FINISHED:
            bound = WatermarkBound(self._alignment.bound_ms(source.group, source.max_drift_ms))
            self._context.send_event(attempt_id.subtask_index, encode_alignment_event(bound))

    async def job_finishing(self) -> None:
        if self._own is not None:
            await self._own.job_finishing()

    async def close(self) -> None:
        if self._own is not None:
            await self._own.close()

    def checkpoint(self, checkpoint_id: int) -> bytes:
        own = self._own_checkpointed
        return b"" if own is None else own.checkpoint(checkpoint_id)

    def checkpoint_completed(self, checkpoint_id: int) -> None:
        if self._own_checkpointed is not None:
            self._own_checkpointed.checkpoint_completed(checkpoint_id)

    def checkpoint_aborted(self, checkpoint_id: int) -> None:
        if self._own_checkpointed is not None:
            self._own_checkpointed.checkpoint_aborted(checkpoint_id)

    def reset(self, checkpoint_id: int | None, state: bytes | None) -> None:
        if self._own_checkpointed is not None:
            self._own_checkpointed.reset(checkpoint_id, state)

    def subtask_reset(self, subtask_index: int, checkpoint_id: int | None) -> None:
        if self._own_checkpointed is not None:
            self._own_checkpointed.subtask_reset(subtask_index, checkpoint_id)

    def _reader(self, attempt_id: ExecutionAttemptId) -> AlignedReader:
        return self._context.operator_id, attempt_id.subtask_index
