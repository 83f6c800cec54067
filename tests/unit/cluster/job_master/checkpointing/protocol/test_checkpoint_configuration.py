"""Configuration of a job's checkpoints, as people are told it."""

from typing import Any

import pytest

from headrace.cluster.job_master.checkpointing.protocol.coordinator_configuration import (
    describe_checkpointing,
)
from headrace.core.config import Settings
from headrace.gateways.checkpoint_statistics import (
    NO_PERIODIC_CHECKPOINTS_MS,
    CheckpointConfiguration,
)

PREFIX = "execution.checkpointing."


def shown(**settings: str) -> CheckpointConfiguration:
    keys = {f"{PREFIX}{key.replace('_', '-')}": value for key, value in settings.items()}
    return describe_checkpointing(Settings(keys))


def test_without_an_interval_no_checkpoints_are_taken() -> None:
    configuration = shown()
    assert not configuration.is_enabled
    assert configuration.interval_ms == NO_PERIODIC_CHECKPOINTS_MS == 9223372036854775807


def test_the_defaults_are_those_of_flink() -> None:
    assert shown(interval="10 s") == CheckpointConfiguration(
        is_enabled=True,
        mode="exactly_once",
        interval_ms=10_000,
        timeout_ms=600_000,
        min_pause_ms=0,
        max_concurrent=1,
        is_externalized=False,
        deletes_on_cancellation=True,
        state_backend="HashMapStateBackend",
        checkpoint_storage="JobManagerCheckpointStorage",
        is_unaligned=False,
        tolerable_failure_count=0,
        aligned_timeout_ms=0,
        checkpoints_after_tasks_finish=True,
    )


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"mode": "at-least-once"}, {"mode": "at_least_once"}),
        ({"timeout": "1 min", "min_pause": "2 s"}, {"timeout_ms": 60_000, "min_pause_ms": 2_000}),
        ({"max_concurrent_checkpoints": "3"}, {"max_concurrent": 3}),
        ({"tolerable_failed_checkpoints": "4"}, {"tolerable_failure_count": 4}),
        (
            {"externalized_checkpoint_retention": "RETAIN_ON_CANCELLATION"},
            {"is_externalized": True, "deletes_on_cancellation": False},
        ),
        (
            {"externalized_checkpoint_retention": "DELETE_ON_CANCELLATION"},
            {"is_externalized": True, "deletes_on_cancellation": True},
        ),
        (
            {"unaligned.enabled": "true", "aligned_checkpoint_timeout": "5 s"},
            {"is_unaligned": True, "aligned_timeout_ms": 5_000},
        ),
        ({"dir": "file:/somewhere"}, {"checkpoint_storage": "FileSystemCheckpointStorage"}),
        ({"checkpoints_after_tasks_finish": "false"}, {"checkpoints_after_tasks_finish": False}),
    ],
    ids=lambda value: next(iter(value)),
)
def test_settings_are_told(settings: dict[str, str], expected: dict[str, Any]) -> None:
    configuration = shown(**settings)
    assert {name: getattr(configuration, name) for name in expected} == expected


def test_the_state_backend_has_the_name_of_flinks_class() -> None:
    settings = Settings({"state.backend.type": "rocksdb"})
    assert describe_checkpointing(settings).state_backend == "EmbeddedRocksDBStateBackend"
