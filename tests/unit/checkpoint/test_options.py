import pytest

from headrace.checkpoint.options import (
    CHECKPOINT_DIRECTORY,
    DATA_INLINE_THRESHOLD,
    NUM_RETAINED,
    RECOVERY_CLAIM_MODE,
    ROCKSDB_MEMORY,
    STORAGE,
    CheckpointStorageKind,
    ClaimMode,
    member_of,
    storage_kind,
)
from headrace.core.config import ConfigOption, Settings
from headrace.core.errors import ConfigurationError


def given(option: ConfigOption, value: object) -> Settings:
    return Settings({option.key: str(value)})


def test_checkpoints_are_in_memory_until_a_folder_is_named() -> None:
    assert storage_kind(Settings()) is CheckpointStorageKind.JOBMANAGER
    assert (
        storage_kind(given(CHECKPOINT_DIRECTORY, "checkpoints")) is CheckpointStorageKind.FILESYSTEM
    )
    both = Settings({CHECKPOINT_DIRECTORY.key: "checkpoints", STORAGE.key: "jobmanager"})
    assert storage_kind(both) is CheckpointStorageKind.JOBMANAGER


def test_a_file_system_without_a_folder_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=CHECKPOINT_DIRECTORY.key):
        storage_kind(given(STORAGE, "filesystem"))


def test_the_older_names_of_keys_are_read() -> None:
    settings = Settings({"state.checkpoints.dir": "x", "state.checkpoints.num-retained": "3"})
    assert settings.get_option(CHECKPOINT_DIRECTORY) == "x"
    assert settings.get_option(NUM_RETAINED) == 3


def test_a_member_is_found_however_it_is_spelt() -> None:
    assert member_of(ClaimMode, given(RECOVERY_CLAIM_MODE, "no-claim"), RECOVERY_CLAIM_MODE) is (
        ClaimMode.NO_CLAIM
    )
    with pytest.raises(ConfigurationError, match="it must be one of NO_CLAIM, CLAIM"):
        member_of(ClaimMode, given(RECOVERY_CLAIM_MODE, "legacy"), RECOVERY_CLAIM_MODE)


@pytest.mark.parametrize("text", ["2mb", "-1"])
def test_an_inline_threshold_beyond_its_bounds_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"at most 1 mb|at least 0"):
        given(DATA_INLINE_THRESHOLD, text).get_option(DATA_INLINE_THRESHOLD)


def test_the_inline_threshold_is_20_kb() -> None:
    assert Settings().get_option(DATA_INLINE_THRESHOLD) == 20480


def test_one_checkpoint_at_least_is_kept() -> None:
    assert Settings().get_option(NUM_RETAINED) == 1
    with pytest.raises(ConfigurationError, match=r"num-retained.*at least 1"):
        given(NUM_RETAINED, 0).get_option(NUM_RETAINED)


def test_rocksdb_is_given_no_less_memory_than_its_write_buffers_need() -> None:
    assert given(ROCKSDB_MEMORY, "8mb").get_option(ROCKSDB_MEMORY) == 8 << 20
    with pytest.raises(ConfigurationError, match=r"fixed-per-slot.*'1b': it must be at least 8 mb"):
        given(ROCKSDB_MEMORY, "1b").get_option(ROCKSDB_MEMORY)
