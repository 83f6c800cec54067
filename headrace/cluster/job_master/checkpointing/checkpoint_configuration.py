"""Configuration of a job's checkpoints for people, with the names of Flink's classes. Pure.

Source: Flink CheckpointConfigHandler.
"""

from typing import Final

from headrace.checkpoint.options import (
    ALIGNED_TIMEOUT,
    MODE,
    RETENTION,
    STATE_BACKEND_TYPE,
    UNALIGNED,
    CheckpointStorageKind,
    ExternalizedCheckpointRetention,
    StateBackendType,
    member_of,
    storage_kind,
)
from headrace.cluster.job_master.checkpointing.protocol.coordinator_configuration import (
    CheckpointCoordinatorConfiguration,
)
from headrace.core.config import Settings
from headrace.gateways.checkpoint_statistics import (
    NO_PERIODIC_CHECKPOINTS_MS,
    CheckpointConfiguration,
)

_STATE_BACKENDS: Final = {
    StateBackendType.HASHMAP: "HashMapStateBackend",
    StateBackendType.ROCKSDB: "EmbeddedRocksDBStateBackend",
}
_STORAGES: Final = {
    CheckpointStorageKind.JOBMANAGER: "JobManagerCheckpointStorage",
    CheckpointStorageKind.FILESYSTEM: "FileSystemCheckpointStorage",
}


def describe_checkpointing(settings: Settings) -> CheckpointConfiguration:
    """Return how a job takes checkpoints; `settings` are the job's over the cluster's. ConfigurationError."""
    rules = CheckpointCoordinatorConfiguration.from_settings(settings)
    retention = member_of(ExternalizedCheckpointRetention, settings, RETENTION)
    is_enabled = rules.interval_ms is not None
    return CheckpointConfiguration(
        is_enabled=is_enabled,
        mode=settings.get_option(MODE).lower().replace("-", "_"),
        interval_ms=round(rules.interval_ms or 0) if is_enabled else NO_PERIODIC_CHECKPOINTS_MS,
        timeout_ms=round(rules.timeout_ms),
        min_pause_ms=round(rules.min_pause_ms),
        max_concurrent=rules.max_concurrent,
        is_externalized=retention
        is not ExternalizedCheckpointRetention.NO_EXTERNALIZED_CHECKPOINTS,
        deletes_on_cancellation=retention
        is not ExternalizedCheckpointRetention.RETAIN_ON_CANCELLATION,
        state_backend=_STATE_BACKENDS[member_of(StateBackendType, settings, STATE_BACKEND_TYPE)],
        checkpoint_storage=_STORAGES[storage_kind(settings)],
        is_unaligned=settings.get_option(UNALIGNED),
        tolerable_failure_count=rules.tolerable_failure_count,
        aligned_timeout_ms=round(settings.duration_ms(ALIGNED_TIMEOUT)),
        checkpoints_after_tasks_finish=rules.after_tasks_finish,
    )
