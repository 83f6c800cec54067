"""CheckpointCoordinatorConfiguration: a job's checkpoint settings, for the coordinator and for people. Pure.

Source: Flink CheckpointCoordinatorConfiguration, CheckpointConfigHandler.
"""

from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from headrace.checkpoint.options import (
    AFTER_TASKS_FINISH,
    ALIGNED_TIMEOUT,
    INTERVAL,
    INTERVAL_DURING_BACKLOG,
    MAX_CONCURRENT,
    MIN_PAUSE,
    MODE,
    RETENTION,
    STATE_BACKEND_TYPE,
    TIMEOUT,
    TOLERABLE_FAILURES,
    UNALIGNED,
    CheckpointingMode,
    CheckpointStorageKind,
    ExternalizedCheckpointRetention,
    StateBackendType,
    member_of,
    storage_kind,
)
from headrace.core.barriers import NEVER_UNALIGNED, AlignmentMode
from headrace.core.config import Settings
from headrace.core.errors import ConfigurationError
from headrace.gateways.checkpoint_statistics import (
    NO_PERIODIC_CHECKPOINTS_MS,
    CheckpointConfiguration,
)
from headrace.graph.pipeline_options import APPROXIMATE_LOCAL_RECOVERY

_STATE_BACKENDS: Final = {
    StateBackendType.HASHMAP: "HashMapStateBackend",
    StateBackendType.ROCKSDB: "EmbeddedRocksDBStateBackend",
}
_STORAGES: Final = {
    CheckpointStorageKind.JOBMANAGER: "JobManagerCheckpointStorage",
    CheckpointStorageKind.FILESYSTEM: "FileSystemCheckpointStorage",
}


@dataclass(frozen=True)
class CheckpointCoordinatorConfiguration:
    """Checkpoint options of one job; durations in ms. `interval_ms` is None without periodic checkpoints.

    `interval_during_backlog_ms`: the interval while a source processes a backlog; 0: no checkpoints, None: the usual
    one. `forces_savepoints`: a savepoint need not wait for pending checkpoints.
    """

    interval_ms: float | None
    timeout_ms: float = 600_000.0
    min_pause_ms: float = 0.0
    max_concurrent: int = 1
    tolerable_failure_count: int = 0
    forces_savepoints: bool = True
    after_tasks_finish: bool = True
    alignment: AlignmentMode = AlignmentMode.ALIGNED
    aligned_timeout_ms: int = NEVER_UNALIGNED
    interval_during_backlog_ms: float | None = None

    @property
    def period_ms(self) -> float:
        """Return the interval, but at least the minimum pause."""
        return max(self.interval_ms or 0.0, self.min_pause_ms)

    @property
    def backlog_period_ms(self) -> float | None:
        """Return the period while a source processes a backlog; None if no checkpoints are taken meanwhile."""
        interval_ms = self.interval_during_backlog_ms
        if interval_ms is None:
            return self.period_ms
        return max(interval_ms, self.min_pause_ms) if interval_ms > 0 else None

    @classmethod
    def from_settings(cls, settings: Settings) -> "CheckpointCoordinatorConfiguration":
        """Make the configuration from the options. ConfigurationError if they contradict each other."""
        alignment, aligned_timeout_ms = _alignment(settings)
        max_concurrent = settings.get_option(MAX_CONCURRENT)
        if max_concurrent < 1:
            raise ConfigurationError(MAX_CONCURRENT.key, max_concurrent, "it must be at least 1")
        if max_concurrent > 1 and settings.get_option(UNALIGNED):
            text = "unaligned checkpoints are taken one at a time"
            raise ConfigurationError(MAX_CONCURRENT.key, max_concurrent, text)
        if settings.get_option(APPROXIMATE_LOCAL_RECOVERY) and settings.get_option(UNALIGNED):
            text = "unaligned checkpoints store in-flight data, which approximate recovery loses"
            raise ConfigurationError(APPROXIMATE_LOCAL_RECOVERY.key, True, text)
        interval_ms = settings.duration_ms(INTERVAL)
        backlog_ms = settings.duration_ms(INTERVAL_DURING_BACKLOG)
        if 0 < backlog_ms < interval_ms:
            text = f"it must be 0, or at least {INTERVAL.key}"
            raise ConfigurationError(INTERVAL_DURING_BACKLOG.key, f"{backlog_ms:g} ms", text)
        return cls(
            interval_ms=interval_ms if interval_ms > 0 else None,
            interval_during_backlog_ms=backlog_ms if backlog_ms >= 0 else None,
            timeout_ms=settings.duration_ms(TIMEOUT),
            min_pause_ms=min(
                settings.duration_ms(MIN_PAUSE), timedelta(days=365).total_seconds() * 1000
            ),
            max_concurrent=max_concurrent,
            tolerable_failure_count=settings.get_option(TOLERABLE_FAILURES),
            forces_savepoints=not settings.get_option(UNALIGNED),
            after_tasks_finish=settings.get_option(AFTER_TASKS_FINISH),
            alignment=alignment,
            aligned_timeout_ms=aligned_timeout_ms,
        )


def _alignment(settings: Settings) -> tuple[AlignmentMode, int]:
    """Return the alignment, and the ms after which an aligned checkpoint becomes unaligned.

    ConfigurationError for unaligned checkpoints in at-least-once mode.
    """
    if member_of(CheckpointingMode, settings, MODE) is CheckpointingMode.AT_LEAST_ONCE:
        if settings.get_option(UNALIGNED):
            text = f"barriers overtake only with {MODE.key}: EXACTLY_ONCE"
            raise ConfigurationError(UNALIGNED.key, True, text)
        return AlignmentMode.AT_LEAST_ONCE, NEVER_UNALIGNED
    if not settings.get_option(UNALIGNED):
        return AlignmentMode.ALIGNED, NEVER_UNALIGNED
    timeout_ms = round(settings.duration_ms(ALIGNED_TIMEOUT))
    if timeout_ms > 0:
        return AlignmentMode.ALIGNED, timeout_ms
    return AlignmentMode.UNALIGNED, NEVER_UNALIGNED


def describe_checkpointing(settings: Settings) -> CheckpointConfiguration:
    """Return a job's checkpoint settings for people; `settings` are the job's over the cluster's.

    ConfigurationError if they are invalid.
    """
    configuration = CheckpointCoordinatorConfiguration.from_settings(settings)
    retention = member_of(ExternalizedCheckpointRetention, settings, RETENTION)
    is_enabled = configuration.interval_ms is not None
    return CheckpointConfiguration(
        is_enabled=is_enabled,
        mode=settings.get_option(MODE).lower().replace("-", "_"),
        interval_ms=round(configuration.interval_ms or 0)
        if is_enabled
        else NO_PERIODIC_CHECKPOINTS_MS,
        timeout_ms=round(configuration.timeout_ms),
        min_pause_ms=round(configuration.min_pause_ms),
        max_concurrent=configuration.max_concurrent,
        is_externalized=retention
        is not ExternalizedCheckpointRetention.NO_EXTERNALIZED_CHECKPOINTS,
        deletes_on_cancellation=retention
        is not ExternalizedCheckpointRetention.RETAIN_ON_CANCELLATION,
        state_backend=_STATE_BACKENDS[member_of(StateBackendType, settings, STATE_BACKEND_TYPE)],
        checkpoint_storage=_STORAGES[storage_kind(settings)],
        is_unaligned=settings.get_option(UNALIGNED),
        tolerable_failure_count=configuration.tolerable_failure_count,
        aligned_timeout_ms=round(settings.duration_ms(ALIGNED_TIMEOUT)),
        checkpoints_after_tasks_finish=configuration.after_tasks_finish,
    )
