"""CheckpointHistory: a job's newest checkpoints with what each subtask told of its part, within a bound. Pure.

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
    "How many checkpoints of a job are remembered with their subtasks, those under way included, besides the newest "
    "that was completed, that failed, and that is a savepoint.",
)  # fmt: skip
_S = CheckpointStatus


class TrackedTask:
    """One vertex's part in one checkpoint."""

    def __init__(self, vertex_id: JobVertexId, subtask_count: int) -> None:
        self._vertex_id: Final = vertex_id
        self._subtask_count: Final = subtask_count
        self._parts: dict[int, SubtaskCheckpoint] = {}
        self._sums: TaskCheckpoint | None = None

    def answered(self, part: SubtaskCheckpoint) -> bool:
        """Take a subtask's part, or that it takes none; False where it has answered before."""
        if part.subtask_index in self._parts:
            return False
        self._parts[part.subtask_index] = part
        self._sums = None
        return True

    def sums(self, status: CheckpointStatus) -> TaskCheckpoint:
        """Return the sums over its subtasks in a checkpoint of this status."""
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
        """Return the sums, and the subtasks by their index."""
        parts = tuple(self._parts[index] for index in sorted(self._parts))
        return TaskCheckpointDetails(self.sums(status), parts)


class TrackedCheckpoint:
    """One checkpoint from its trigger to its end, after which it never changes but to be discarded.

    `plan` is None where it failed before its subtasks were known.
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
            # It has nothing to store and is not asked.
            self._take(subtask, SubtaskCheckpoint(subtask.subtask_index, timestamp_ms, 0))

    @property
    def checkpoint_id(self) -> int:
        """Return its id."""
        return self._record.checkpoint_id

    def acknowledged(
        self,
        subtask: ExecutionVertexId,
        snapshot: TaskStateSnapshot,
        metrics: CheckpointMetrics,
        now_ms: int,
    ) -> None:
        """Take what a subtask told of its part. Repeated ones change nothing."""
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
        """Take that a subtask does not take its part."""
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
        """The checkpoint's metadata are stored: `size_bytes` of state, that of operator coordinators included."""
        self._end(
            _S.COMPLETED, monotonic_ms, external_path=shown_uri(uri), state_size_bytes=size_bytes
        )

    def failed(self, text: str, now_ms: int, monotonic_ms: float) -> None:
        """The checkpoint failed, for the reason in `text`."""
        self._end(_S.FAILED, monotonic_ms, failure_timestamp_ms=now_ms, failure_message=text)

    def _end(self, status: CheckpointStatus, monotonic_ms: float, **changes: int | str) -> None:
        self._record = msgspec.structs.replace(
            self._record,
            status=status,
            end_to_end_duration_ms=round(monotonic_ms - self._begun_ms),
            **changes,
        )

    def retained(self, retained_ids: Set[int]) -> None:
        """Mark a completed checkpoint that is not among those that are kept; savepoints belong to their users."""
        record = self._record
        is_own = record.status is _S.COMPLETED and not record.kind.is_savepoint
        if is_own and not record.is_discarded and record.checkpoint_id not in retained_ids:
            self._record = msgspec.structs.replace(record, is_discarded=True)

    @property
    def record(self) -> CheckpointRecord:
        """Return it as it stands."""
        return self._record

    @property
    def details(self) -> CheckpointDetails:
        """Return it with its subtasks."""
        record = self._record
        tasks = tuple(each.details(record.status) for each in self._tasks.values())
        return CheckpointDetails(record, tasks)


class CheckpointHistory:
    """The `size` newest checkpoints, and the newest of each kind, however old."""

    def __init__(self, size: int) -> None:
        self._size: Final = size
        self._newest: Final[dict[int, TrackedCheckpoint]] = {}
        self.latest_completed: TrackedCheckpoint | None = None
        self.latest_savepoint: TrackedCheckpoint | None = None
        self.latest_failed: TrackedCheckpoint | None = None

    def add(self, checkpoint: TrackedCheckpoint) -> None:
        """Remember one that begins; the oldest is forgotten for it."""
        self._newest[checkpoint.checkpoint_id] = checkpoint
        while len(self._newest) > self._size:
            del self._newest[next(iter(self._newest))]

    def find(self, checkpoint_id: int) -> TrackedCheckpoint | None:
        """Return one that is remembered; None where it is not."""
        found = self._newest.get(checkpoint_id)
        return found or next(
            (one for one in self._latest() if one.checkpoint_id == checkpoint_id), None
        )

    def __iter__(self) -> Iterator[TrackedCheckpoint]:
        """Yield the newest ones, newest first."""
        return reversed(self._newest.values())

    @property
    def all(self) -> Iterable[TrackedCheckpoint]:
        """Return all that are remembered, each once."""
        return {one.checkpoint_id: one for one in (*self, *self._latest())}.values()

    def retained(self, retained_ids: Set[int]) -> None:
        """Mark completed checkpoints that are not among those that are kept."""
        for one in self.all:
            one.retained(retained_ids)

    def _latest(self) -> Iterator[TrackedCheckpoint]:
        latest = (self.latest_completed, self.latest_savepoint, self.latest_failed)
        return (one for one in latest if one is not None)
