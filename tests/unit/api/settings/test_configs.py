import doctest
import importlib
import pkgutil

import pytest

import headrace.api
import headrace.connectors.datagen
import headrace.connectors.files
from headrace.common import Duration, ExecutionConfig, JobStatus, RestartStrategies
from headrace.core.errors import ConfigurationError
from headrace.datastream import (
    CheckpointConfig,
    CheckpointingMode,
    ExternalizedCheckpointRetention,
    MemorySize,
)

PACKAGES = [
    headrace.api,
    headrace.connectors.datagen,
    headrace.connectors.files,
]
MODULES = ["headrace"] + [
    info.name
    for package in PACKAGES
    for info in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
]


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings_are_true(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module = importlib.import_module(name)
    outcome = doctest.testmod(module, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert outcome.failed == 0


def test_execution_config_defaults_and_setters() -> None:
    config = ExecutionConfig()
    assert config.get_parallelism() == ExecutionConfig.PARALLELISM_DEFAULT
    assert config.get_auto_watermark_interval() == 200
    assert config.get_latency_tracking_interval() == 0
    assert config.get_task_cancellation_interval() == 30000
    assert config.get_task_cancellation_timeout() == 180000
    assert config.has_auto_generated_uids_enabled()
    assert not config.is_object_reuse_enabled()
    assert config.is_use_snapshot_compression()
    assert config.enable_object_reuse().is_object_reuse_enabled()
    assert not config.disable_object_reuse().is_object_reuse_enabled()
    assert not config.disable_auto_generated_uids().has_auto_generated_uids_enabled()
    assert config.set_task_cancellation_timeout(5).get_task_cancellation_timeout() == 5
    assert (
        config
        == ExecutionConfig()
        .disable_object_reuse()
        .disable_auto_generated_uids()
        .set_task_cancellation_timeout(5)
    )
    assert config != ExecutionConfig()


def test_checkpoint_config_defaults_are_flinks() -> None:
    config = CheckpointConfig()
    assert config.get_checkpointing_mode() is CheckpointingMode.AT_LEAST_ONCE
    assert config.get_checkpoint_interval() == -1
    assert not config.is_checkpointing_enabled()
    assert config.get_checkpoint_timeout() == 600000
    assert config.get_min_pause_between_checkpoints() == 0
    assert config.get_max_concurrent_checkpoints() == 1
    assert config.is_fail_on_checkpointing_errors()
    assert config.get_tolerable_checkpoint_failure_number() == 0
    assert not config.is_externalized_checkpoints_enabled()
    assert not config.is_unaligned_checkpoints_enabled()
    assert config.get_aligned_checkpoint_timeout() == Duration.of_millis(0)
    assert not config.is_force_unaligned_checkpoints()


def test_unaligned_checkpoints_are_said_to_be_on_where_they_are_exactly_once_as_in_flink() -> None:
    config = CheckpointConfig().enable_unaligned_checkpoints()
    assert not config.is_unaligned_checkpoints_enabled(), "checkpointing is off"
    config.set_checkpoint_interval(1000)
    assert config.is_unaligned_checkpoints_enabled()
    assert not config.disable_unaligned_checkpoints().is_unaligned_checkpoints_enabled()
    config.enable_unaligned_checkpoints().set_checkpointing_mode(CheckpointingMode.AT_LEAST_ONCE)
    assert not config.is_unaligned_checkpoints_enabled()


def test_checkpoint_config_keeps_what_is_set() -> None:
    retain = ExternalizedCheckpointRetention.RETAIN_ON_CANCELLATION
    config = (
        CheckpointConfig()
        .set_checkpointing_mode(CheckpointingMode.AT_LEAST_ONCE)
        .set_checkpoint_interval(1000)
        .set_min_pause_between_checkpoints(100)
        .set_max_concurrent_checkpoints(2)
        .set_fail_on_checkpointing_errors(False)
        .set_externalized_checkpoint_retention(retain)
        .enable_unaligned_checkpoints()
        .set_alignment_timeout(Duration.of_minutes(1))
        .set_force_unaligned_checkpoints(False)
    )
    assert config.is_checkpointing_enabled()
    assert config.get_checkpointing_mode() is CheckpointingMode.AT_LEAST_ONCE
    assert config.get_min_pause_between_checkpoints() == 100
    assert config.get_max_concurrent_checkpoints() == 2
    assert not config.is_fail_on_checkpointing_errors()
    assert config.get_externalized_checkpoint_retention() is retain
    assert config.is_externalized_checkpoints_enabled()
    assert not config.is_unaligned_checkpoints_enabled(), "they are at least once"
    assert config.get_alignment_timeout() == Duration.of_minutes(1)
    assert not config.is_force_unaligned_checkpoints()


def test_checkpoint_config_refuses_what_cannot_be() -> None:
    with pytest.raises(ValueError, match="at least one"):
        CheckpointConfig().set_max_concurrent_checkpoints(0)
    with pytest.raises(ValueError, match="at least 10 ms"):
        CheckpointConfig().set_checkpoint_interval(1)
    with pytest.raises(ValueError, match="non-negative"):
        CheckpointConfig().set_tolerable_checkpoint_failure_number(-1)
    from headrace.api.settings.program_settings import ProgramSettings

    with pytest.raises(ConfigurationError, match="it must be one of EXACTLY_ONCE, AT_LEAST_ONCE"):
        ProgramSettings({"execution.checkpointing.mode": "sometimes"})


def test_memory_sizes_compare_and_print() -> None:
    assert MemorySize(bytes_size=1 << 20) == MemorySize.of_mebi_bytes(1)
    assert MemorySize(1) < MemorySize(2)
    assert hash(MemorySize(1)) == hash(MemorySize(1))
    assert MemorySize(1536 << 10).get_mebi_bytes() == 1
    with pytest.raises(TypeError):
        assert MemorySize(1) < 2


def test_restart_strategies_describe_themselves() -> None:
    assert RestartStrategies.no_restart().get_description() == "Restart deactivated."
    rate = RestartStrategies.failure_rate_restart(3, 1000, 10)
    assert "3 failures within interval 1000 ms" in rate.get_description()
    assert RestartStrategies.fall_back_restart() == RestartStrategies.fall_back_restart()


def test_job_status_knows_its_ends() -> None:
    assert JobStatus.FINISHED.is_globally_terminal_state()
    assert JobStatus.SUSPENDED.is_terminal_state()
    assert not JobStatus.SUSPENDED.is_globally_terminal_state()
