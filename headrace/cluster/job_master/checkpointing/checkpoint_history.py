"""CheckpointHistory: a job's newest checkpoints with the reports of their subtasks, bounded in number. Pure.

Source: Flink CheckpointStatsHistory, PendingCheckpointStats, TaskStateStats, SubtaskStateStats.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Set
from typing import Final

import msgspec

from headrace.checkpoint.handles import CheckpointMetrics, TaskStateSnapshot
from headrace.cluster.job_master.checkpointing.protocol.checkpoint_plan import CheckpointPlan
from headrace.core.barriers import SnapshotKind
from headrace.core.config import ConfigOption
from headrace.core.ids import ExecutionVertexId, JobVertexId
from headrace.core.redaction import shown_uri
from headrace.gateways.checkpoint_statistics import (
    CheckpointDetails,
    CheckpointRecord,
    CheckpointStatus,
    SubtaskCheckpoint,
    TaskCheckpoint,
    TaskCheckpointDetails,
)

CHECKPOINTS_HISTORY: Final = ConfigOption(
    "web.checkpoints.history", int, 10,
    "Number of checkpoints of a job that are remembered with their subtasks, including pending ones, besides the "
    "newest completed one, failed one and savepoint.",
)  # fmt: skip
_S = CheckpointStatus


class TrackedTask:
    """One vertex's part of one checkpoint."""

    def __init__(self, vertex_id: JobVertexId, subtask_count: int) -> None:
        self._vertex_id: Final = vertex_id
        self._subtask_count: Final = subtask_count
        self._parts: dict[int, SubtaskCheckpoint] = {}
        self._sums: TaskCheckpoint | None = None

    def answered(self, part: SubtaskCheckpoint) -> bool:
        """Record a subtask's part or its decline; return False if the subtask has answered before."""
        if part.subtask_index in self._parts:
            return False
        self._parts[part.subtask_index] = part
        self._sums = None
        return True

    def sums(self, status: CheckpointStatus) -> TaskCheckpoint:
        """Return the sums over the vertex's subtasks in a checkpoint of this status."""
        if self._sums is None or self._sums.status is not status:
            parts = [each for each in self._parts.values() if not each.is_aborted]
            self._sums = TaskCheckpoint(
                self._vertex_id,
                status,
                max((each.ack_timestamp_ms for each in parts), default=-1),
                sum(each.checkpointed_size_bytes for each in parts),
                sum(each.state_size_bytes for each in parts),
                max((each.end_to_end_duration_ms for each in parts), default=-1),
                sum(each.alignment_buffered_bytes for each in parts),
                sum(each.processed_bytes for each in parts),
                sum(each.persisted_bytes for each in parts),
                self._subtask_count,
                len(parts),
            )
        return self._sums

    def details(self, status: CheckpointStatus) -> TaskCheckpointDetails:
        """Return the sums, and the subtasks by index."""
        parts = tuple(self._parts[index] for index in sorted(self._parts))
        return TaskCheckpointDetails(self.sums(status), parts)


class TrackedCheckpoint:
    """One checkpoint from its trigger to its end; after that it can only be discarded.

    `plan` is None if it failed before its subtasks were known.
    """

    def __init__(
        self,
        checkpoint_id: int,
        kind: SnapshotKind,
        timestamp_ms: int,
        monotonic_ms: float,
        *,
        plan: CheckpointPlan | None = None,
        is_unaligned: bool = False,
    ) -> None:
        plan = plan or CheckpointPlan((), ())
        subtasks = (*(each.execution_vertex_id for each in plan.to_wait_for), *plan.finished)
        counts = Counter(each.vertex_id for each in subtasks)
        self._tasks: Final = {key: TrackedTask(key, count) for key, count in counts.items()}
        self._begun_ms: Final = monotonic_ms
        self._record = CheckpointRecord(
            checkpoint_id,
            kind,
            _S.IN_PROGRESS,
            kind.savepoint_format,
            timestamp_ms,
            latest_ack_timestamp_ms=-1,
            checkpointed_size_bytes=0,
            state_size_bytes=0,
            end_to_end_duration_ms=-1,
            alignment_buffered_bytes=0,
            processed_bytes=0,
            persisted_bytes=0,
            subtask_count=len(subtasks),
            acknowledged_subtask_count=0,
            is_unaligned=is_unaligned,
        )
        for subtask in plan.finished:
            # A finished subtask has nothing to store and is not triggered.
            self._take(subtask, SubtaskCheckpoint(subtask.subtask_index, timestamp_ms, 0))

    @property
    def checkpoint_id(self) -> int:
        """Id of the checkpoint."""
        return self._record.checkpoint_id

    def acknowledged(
        self,
        subtask: ExecutionVertexId,
        snapshot: TaskStateSnapshot,
        metrics: CheckpointMetrics,
        now_ms: int,
    ) -> None:
        """Record a subtask's acknowledgement. A repeated one has no effect."""
        part = SubtaskCheckpoint(
            subtask.subtask_index,
            now_ms,
            max(0, now_ms - self._record.trigger_timestamp_ms),
            checkpointed_size_bytes=metrics.written_bytes,
            state_size_bytes=sum(each.size_bytes for each in snapshot.operators.values()),
            sync_duration_ms=metrics.sync_ms,
            async_duration_ms=metrics.async_ms,
            alignment_duration_ms=metrics.alignment_ms,
            processed_bytes=metrics.processed_bytes,
            persisted_bytes=metrics.in_flight_bytes,
            start_delay_ms=metrics.start_delay_ms,
            is_unaligned=metrics.is_unaligned,
        )
        self._take(subtask, part)

    def declined(self, subtask: ExecutionVertexId, now_ms: int) -> None:
        """Record that a subtask declines its part."""
        elapsed_ms = max(0, now_ms - self._record.trigger_timestamp_ms)
        part = SubtaskCheckpoint(subtask.subtask_index, now_ms, elapsed_ms, is_aborted=True)
        self._take(subtask, part)

    def _take(self, subtask: ExecutionVertexId, part: SubtaskCheckpoint) -> None:
        task = self._tasks.get(subtask.vertex_id)
        if task is None or not task.answered(part) or part.is_aborted:
            return
        record = self._record
        self._record = msgspec.structs.replace(
            record,
            latest_ack_timestamp_ms=max(record.latest_ack_timestamp_ms, part.ack_timestamp_ms),
            checkpointed_size_bytes=record.checkpointed_size_bytes + part.checkpointed_size_bytes,
            state_size_bytes=record.state_size_bytes + part.state_size_bytes,
            processed_bytes=record.processed_bytes + part.processed_bytes,
            persisted_bytes=record.persisted_bytes + part.persisted_bytes,
            acknowledged_subtask_count=record.acknowledged_subtask_count + 1,
            is_unaligned=record.is_unaligned or part.is_unaligned,
        )

    def completed(self, uri: str, size_bytes: int, monotonic_ms: float) -> None:
        """Record that the metadata are stored, with `size_bytes` of state including that of operator coordinators."""
        self._end(
            _S.COMPLETED, monotonic_ms, external_path=shown_uri(uri), state_size_bytes=size_bytes
        )

    def failed(self, text: str, now_ms: int, monotonic_ms: float) -> None:
        """Record that the checkpoint failed, for the reason in `text`."""
        self._end(_S.FAILED, monotonic_ms, failure_timestamp_ms=now_ms, failure_message=text)

    def _end(self, status: CheckpointStatus, monotonic_ms: float, **changes: int | str) -> None:
        self._record = msgspec.structs.replace(
            self._record,
            status=status,
            end_to_end_duration_ms=round(monotonic_ms - self._begun_ms),
            **changes,
        )

    def retained(self, retained_ids: Set[int]) -> None:
        """Mark a completed checkpoint that is no longer retained as discarded; savepoints belong to their users."""
        record = self._record
        is_own = record.status is _S.COMPLETED and not record.kind.is_savepoint
        if is_own and not record.is_discarded and record.checkpoint_id not in retained_ids:
            self._record = msgspec.structs.replace(record, is_discarded=True)

    @property
    def record(self) -> CheckpointRecord:
        """Current record of the checkpoint."""
        return self._record

    @property
    def details(self) -> CheckpointDetails:
        """Record of the checkpoint with its subtasks."""
        record = self._record
        tasks = tuple(each.details(record.status) for each in self._tasks.values())
        return CheckpointDetails(record, tasks)


class CheckpointHistory:
    """The `size` newest checkpoints, and the newest of each kind whatever its age."""

    def __init__(self, size: int) -> None:
        self._size: Final = size
        self._newest: Final[dict[int, TrackedCheckpoint]] = {}
        self.latest_completed: TrackedCheckpoint | None = None
        self.latest_savepoint: TrackedCheckpoint | None = None
        self.latest_failed: TrackedCheckpoint | None = None

    def add(self, checkpoint: TrackedCheckpoint) -> None:
        """Add a checkpoint that begins, and forget the oldest beyond the limit."""
        self._newest[checkpoint.checkpoint_id] = checkpoint
        while len(self._newest) > self._size:
            del self._newest[next(iter(self._newest))]

    def find(self, checkpoint_id: int) -> TrackedCheckpoint | None:
        """Return a remembered checkpoint, or None."""
        found = self._newest.get(checkpoint_id)
        return found or next(
            (one for one in self._latest() if one.checkpoint_id == checkpoint_id), None
        )

    def __iter__(self) -> Iterator[TrackedCheckpoint]:
        """Yield the newest checkpoints, newest first."""
        return reversed(self._newest.values())

    @property
    def all(self) -> Iterable[TrackedCheckpoint]:
        """All remembered checkpoints, each once."""
        return {one.checkpoint_id: one for one in (*self, *self._latest())}.values()

    def retained(self, retained_ids: Set[int]) -> None:
        """Mark completed checkpoints that are no longer retained as discarded."""
        for one in self.all:
            one.retained(retained_ids)

    def _latest(self) -> Iterator[TrackedCheckpoint]:
        latest = (self.latest_completed, self.latest_savepoint, self.latest_failed)
        return (one for one in latest if one is not None)
