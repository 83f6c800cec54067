"""CheckpointStatisticsTracker: counts a job's checkpoints and keeps the newest ones for display.

Durations are monotonic. Runs on the JobMaster's main thread. Source: Flink CheckpointStatsTracker.
"""

from array import array
from collections.abc import Iterable, Set
from typing import Final

import msgspec

from headrace.checkpoint.errors import CheckpointFailureReason
from headrace.checkpoint.handles import CheckpointMetrics, TaskStateSnapshot
from headrace.checkpoint.metadata import CompletedCheckpoint
from headrace.cluster.job_master.checkpointing.checkpoint_history import (
    CheckpointHistory,
    TrackedCheckpoint,
)
from headrace.cluster.job_master.checkpointing.protocol.pending_checkpoint import PendingCheckpoint
from headrace.core.barriers import SnapshotKind
from headrace.core.clock import Clock
from headrace.core.ids import ExecutionAttemptId
from headrace.core.redaction import shown_uri
from headrace.gateways.checkpoint_statistics import (
    CheckpointCounts,
    CheckpointDetails,
    CheckpointInfo,
    CheckpointOverview,
    CheckpointRecord,
    CheckpointStatistics,
    CheckpointSummary,
    FailedCheckpointInfo,
    RestoredCheckpoint,
    StatisticsSummary,
)
from headrace.metrics.instruments import interpolated_quantile

WINDOW_SIZE: Final = 10_000
"""Number of the newest values from which quantiles are computed."""
_QUANTILES: Final = (0.5, 0.9, 0.95, 0.99, 0.999)


class StatisticsHistogram:
    """Minimum, maximum and average of integers, and quantiles of the `window_size` newest, in bounded memory. Pure.

    Source: Flink StatsSummary, DescriptiveStatisticsHistogram.
    """

    def __init__(self, window_size: int = WINDOW_SIZE) -> None:
        assert window_size >= 1
        self._window_size: Final = window_size
        self._newest: Final = array("q")
        self._count = 0
        self._sum = 0
        self._minimum = 0
        self._maximum = 0

    def add(self, value: int) -> None:
        """Add a value."""
        self._minimum = value if not self._count else min(self._minimum, value)
        self._maximum = value if not self._count else max(self._maximum, value)
        if len(self._newest) < self._window_size:
            self._newest.append(value)
        else:
            self._newest[self._count % self._window_size] = value
        self._count += 1
        self._sum += value

    @property
    def summary(self) -> StatisticsSummary:
        """Return the summary of the values so far."""
        if not self._count:
            return StatisticsSummary()
        ordered = sorted(self._newest)
        p50, p90, p95, p99, p999 = (interpolated_quantile(ordered, each) for each in _QUANTILES)
        average = self._sum // self._count
        return StatisticsSummary(self._minimum, self._maximum, average, p50, p90, p95, p99, p999)


class CheckpointStatisticsTracker:
    """Statistics of one JobMaster. `history_size` checkpoints are remembered with their subtasks."""

    def __init__(self, clock: Clock, history_size: int) -> None:
        self._clock: Final = clock
        self._history: Final = CheckpointHistory(history_size)
        self._in_progress: Final[dict[int, TrackedCheckpoint]] = {}
        self._overview = CheckpointOverview()
        self._restored: RestoredCheckpoint | None = None
        self._histograms: Final = {
            name: StatisticsHistogram() for name in CheckpointSummary.__struct_fields__
        }
        # Recomputed only when a checkpoint has completed, because quantiles need many values.
        self._summary = CheckpointSummary()

    def begun(self, checkpoint: PendingCheckpoint) -> None:
        """Count a checkpoint that has its location."""
        tracked = TrackedCheckpoint(
            checkpoint.checkpoint_id,
            checkpoint.kind,
            checkpoint.timestamp_ms,
            self._clock.monotonic_ms(),
            plan=checkpoint.plan,
            is_unaligned=checkpoint.options.is_unaligned,
        )
        self._begin(tracked)

    def _begin(self, tracked: TrackedCheckpoint) -> None:
        self._in_progress[tracked.checkpoint_id] = tracked
        self._count(triggered=self._overview.counts.triggered + 1)
        self._history.add(tracked)

    def acknowledged(
        self,
        attempt_id: ExecutionAttemptId,
        checkpoint_id: int,
        snapshot: TaskStateSnapshot,
        metrics: CheckpointMetrics,
    ) -> None:
        """Record a subtask's acknowledgement of a pending checkpoint."""
        tracked = self._in_progress.get(checkpoint_id)
        if tracked is not None:
            subtask = attempt_id.execution_vertex_id
            tracked.acknowledged(subtask, snapshot, metrics, self._clock.now_ms())

    def declined(self, attempt_id: ExecutionAttemptId, checkpoint_id: int) -> None:
        """Record that a subtask declines its part of a pending checkpoint."""
        tracked = self._in_progress.get(checkpoint_id)
        if tracked is not None:
            tracked.declined(attempt_id.execution_vertex_id, self._clock.now_ms())

    def completed(
        self, checkpoint: PendingCheckpoint, published: CompletedCheckpoint, retained: Set[int]
    ) -> None:
        """Count a published checkpoint or savepoint; `retained` are the ids of the checkpoints that are kept now."""
        tracked = self._in_progress.pop(checkpoint.checkpoint_id)
        size_bytes = published.metadata.size_bytes
        tracked.completed(published.uri, size_bytes, self._clock.monotonic_ms())
        info = CheckpointInfo(
            checkpoint.checkpoint_id,
            checkpoint.kind,
            checkpoint.timestamp_ms,
            tracked.record.end_to_end_duration_ms,
            size_bytes,
            sum(metrics.written_bytes for metrics in checkpoint.metrics.values()),
            published.uri,
            slowest_of(checkpoint.metrics.values()),
            published.metadata_bytes,
        )
        self._count(completed=self._overview.counts.completed + 1)
        self._summarize(tracked.record)
        if checkpoint.kind.is_savepoint:
            self._overview = msgspec.structs.replace(self._overview, latest_savepoint=info)
            self._history.latest_savepoint = tracked
        else:
            self._overview = msgspec.structs.replace(self._overview, latest_completed=info)
            self._history.latest_completed = tracked
        self.retained(retained)

    def failed(
        self, checkpoint: PendingCheckpoint, reason: CheckpointFailureReason, text: str
    ) -> None:
        """Count a checkpoint that failed."""
        self._fail(self._in_progress.pop(checkpoint.checkpoint_id), reason, text)

    def not_located(
        self,
        checkpoint_id: int,
        kind: SnapshotKind,
        timestamp_ms: int,
        begun_ms: float,
        reason: CheckpointFailureReason,
        text: str,
    ) -> None:
        """Count a checkpoint that failed before it had its location."""
        tracked = TrackedCheckpoint(checkpoint_id, kind, timestamp_ms, begun_ms)
        self._begin(tracked)
        self._fail(self._in_progress.pop(checkpoint_id), reason, text)

    def _fail(self, tracked: TrackedCheckpoint, reason: CheckpointFailureReason, text: str) -> None:
        tracked.failed(text, self._clock.now_ms(), self._clock.monotonic_ms())
        record = tracked.record
        info = FailedCheckpointInfo(
            record.checkpoint_id,
            record.kind,
            record.trigger_timestamp_ms,
            record.end_to_end_duration_ms,
            reason.name,
            text,
        )
        self._count(failed=self._overview.counts.failed + 1)
        self._overview = msgspec.structs.replace(self._overview, latest_failed=info)
        self._history.latest_failed = tracked

    def restored(self, checkpoint: CompletedCheckpoint) -> None:
        """Count a start of the job, or of a part of it, from a checkpoint."""
        checkpoint_id, now_ms = checkpoint.checkpoint_id, self._clock.now_ms()
        self._count(restored=self._overview.counts.restored + 1)
        self._overview = msgspec.structs.replace(
            self._overview, restored_id=checkpoint_id, restored_timestamp_ms=now_ms
        )
        self._restored = RestoredCheckpoint(
            checkpoint_id,
            now_ms,
            checkpoint.metadata.kind,
            shown_uri(checkpoint.uri),
        )

    def retained(self, retained: Set[int]) -> None:
        """Mark completed checkpoints that are no longer kept as discarded."""
        self._history.retained(retained)

    def statistics(self, *, is_enabled: bool) -> CheckpointStatistics:
        """Return all current statistics; `is_enabled`: whether checkpoints are taken periodically."""
        history = self._history
        return CheckpointStatistics(
            is_enabled,
            self._counts,
            self._summary,
            _record_of(history.latest_completed),
            _record_of(history.latest_savepoint),
            _record_of(history.latest_failed),
            self._restored,
            tuple(one.record for one in history),
        )

    @property
    def _counts(self) -> CheckpointCounts:
        return msgspec.structs.replace(self._overview.counts, in_progress=len(self._in_progress))

    def details(self, checkpoint_id: int) -> CheckpointDetails | None:
        """Return a checkpoint with its subtasks; None if it is not remembered."""
        tracked = self._history.find(checkpoint_id)
        return None if tracked is None else tracked.details

    @property
    def all_details(self) -> tuple[CheckpointDetails, ...]:
        """All remembered checkpoints with their subtasks."""
        return tuple(one.details for one in self._history.all)

    def overview(
        self,
        *,
        uncommitted_ids: tuple[int, ...] = (),
        blocking_sinks: tuple[str, ...] = (),
        is_commit_backlog_full: bool = False,
        cleaning_count: int = 0,
        max_concurrent: int = 1,
    ) -> CheckpointOverview:
        """Return a current overview, with the causes that delay the next checkpoint."""
        paused_because = ""
        if is_commit_backlog_full:
            paused_because = f"sinks have not committed: {', '.join(blocking_sinks)}"
        elif cleaning_count > max_concurrent:
            paused_because = f"{cleaning_count} old checkpoints are still being deleted"
        return msgspec.structs.replace(
            self._overview,
            counts=self._counts,
            uncommitted_ids=uncommitted_ids,
            blocking_sinks=blocking_sinks,
            paused_because=paused_because,
        )

    def _summarize(self, record: CheckpointRecord) -> None:
        values = {
            "checkpointed_size": record.checkpointed_size_bytes,
            "state_size": record.state_size_bytes,
            "end_to_end_duration": record.end_to_end_duration_ms,
            "alignment_buffered": record.alignment_buffered_bytes,
            "processed_data": record.processed_bytes,
            "persisted_data": record.persisted_bytes,
        }
        for name, value in values.items():
            self._histograms[name].add(value)
        self._summary = CheckpointSummary(
            **{name: histogram.summary for name, histogram in self._histograms.items()}
        )

    def _count(self, **changes: int) -> None:
        counts: CheckpointCounts = msgspec.structs.replace(self._overview.counts, **changes)
        self._overview = msgspec.structs.replace(self._overview, counts=counts)


def _record_of(tracked: TrackedCheckpoint | None) -> CheckpointRecord | None:
    return None if tracked is None else tracked.record


def slowest_of(parts: Iterable[CheckpointMetrics]) -> CheckpointMetrics:
    """Combine the metrics of subtasks: the maximum of each duration, and the sum of bytes."""
    whole = CheckpointMetrics()
    for part in parts:
        whole = CheckpointMetrics(
            start_delay_ms=max(whole.start_delay_ms, part.start_delay_ms),
            alignment_ms=max(whole.alignment_ms, part.alignment_ms),
            sync_ms=max(whole.sync_ms, part.sync_ms),
            async_ms=max(whole.async_ms, part.async_ms),
            written_bytes=whole.written_bytes + part.written_bytes,
            in_flight_bytes=whole.in_flight_bytes + part.in_flight_bytes,
            is_unaligned=whole.is_unaligned or part.is_unaligned,
        )
    return whole
