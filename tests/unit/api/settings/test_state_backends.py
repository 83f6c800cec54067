import pytest

from headrace.core.errors import ProgramError
from headrace.datastream import (
    EmbeddedRocksDBStateBackend,
    FileSystemCheckpointStorage,
    HashMapStateBackend,
    JobManagerCheckpointStorage,
    PredefinedOptions,
    StateBackend,
)
from headrace.datastream.checkpoint_storage import CheckpointStorage


def test_what_is_set_on_a_state_backend_can_be_read_again() -> None:
    assert isinstance(HashMapStateBackend(), StateBackend)
    backend = EmbeddedRocksDBStateBackend(True)
    assert (backend.is_incremental_checkpoints_enabled(), backend.get_db_storage_paths()) == (
        True,
        None,
    )
    backend.set_db_storage_paths("/one", "/two")
    assert backend.get_db_storage_paths() == ["/one", "/two"]
    backend.set_db_storage_paths()
    assert backend.get_db_storage_paths() is None
    assert backend.get_predefined_options() is PredefinedOptions.DEFAULT
    backend.set_predefined_options(PredefinedOptions.FLASH_SSD_OPTIMIZED)
    assert backend.get_predefined_options() is PredefinedOptions.FLASH_SSD_OPTIMIZED
    assert backend.get_number_of_transfer_threads() == 4
    backend.set_number_of_transfer_threads(8)
    assert (backend.get_number_of_transfer_threads(), backend.get_options()) == (8, None)
    assert not EmbeddedRocksDBStateBackend().is_incremental_checkpoints_enabled()


def test_a_state_backend_refuses_what_it_could_not_mean() -> None:
    backend = EmbeddedRocksDBStateBackend()
    with pytest.raises(ProgramError, match=r"set_options .* cannot run here"):
        backend.set_options("org.example.Factory")
    with pytest.raises(ValueError, match="at least 1 thread"):
        backend.set_number_of_transfer_threads(0)
    with pytest.raises(TypeError, match="True, False or None, not 'yes'"):
        EmbeddedRocksDBStateBackend("yes")  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match="needs PredefinedOptions, not 3"):
        backend.set_predefined_options(3)  # pyright: ignore[reportArgumentType]


def test_what_is_set_on_a_checkpoint_storage_can_be_read_again() -> None:
    memory = JobManagerCheckpointStorage()
    assert isinstance(memory, CheckpointStorage)
    assert (memory.get_checkpoint_path(), memory.get_max_state_size()) == (None, 5 << 20)
    assert JobManagerCheckpointStorage("file:///c/", 7).get_max_state_size() == 7
    files = FileSystemCheckpointStorage("file:///checkpoints/")
    assert files.get_checkpoint_path() == "file:///checkpoints"
    assert (files.get_min_file_size_threshold(), files.get_write_buffer_size()) == (20 << 10, 4096)
    assert files.get_savepoint_path() is None
    files = FileSystemCheckpointStorage("/c", 2048, 8192)
    assert (files.get_min_file_size_threshold(), files.get_write_buffer_size()) == (2048, 8192)


def test_a_checkpoint_storage_refuses_what_it_could_not_mean() -> None:
    with pytest.raises(ValueError, match="checkpoint_path must not be None"):
        FileSystemCheckpointStorage()
    with pytest.raises(ValueError, match=r"within 0\.\.1048576, or -1, not 1048577"):
        FileSystemCheckpointStorage("/c", (1 << 20) + 1)
    with pytest.raises(ValueError, match="-1, 0 or more, not -2"):
        FileSystemCheckpointStorage("/c", write_buffer_size=-2)
    with pytest.raises(ValueError, match="above 0, not 0"):
        JobManagerCheckpointStorage(max_state_size=0)
