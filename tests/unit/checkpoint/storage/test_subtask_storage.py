import random
from pathlib import Path

import pyarrow.fs as fs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.checkpoint.errors import CheckpointCorruptedError, CheckpointStorageError
from headrace.checkpoint.handles import StateFile
from headrace.checkpoint.options import DATA_INLINE_THRESHOLD
from headrace.checkpoint.storage import file_systems
from headrace.checkpoint.storage.file_systems import (
    child_uri,
    file_name_of,
    files_below,
    folder_entries,
    parent_uri,
    read_all,
    remove_file,
    write_new,
)
from headrace.checkpoint.storage.subtask_storage import (
    IN_MEMORY_MAX,
    StateReader,
    SubtaskStorage,
    digest_of,
)
from headrace.core.barriers import CheckpointOptions
from headrace.core.config import Settings

BIG = bytes(range(256)) * 200


def storage_in(folder: str, **settings: str) -> SubtaskStorage:
    options = CheckpointOptions(
        exclusive_uri=child_uri(folder, "chk-7"), shared_uri=child_uri(folder, "shared")
    )
    return SubtaskStorage(options, "map-0-1", Settings(settings), random.Random(5))


def test_small_content_stays_inside_its_handle(folder: str) -> None:
    storage = storage_in(folder)
    file = storage.write("counts", b"few")
    assert file == StateFile("", b"few", 3, digest_of(b"few"))
    assert storage.written_bytes == 0
    assert StateReader().read(file) == b"few"
    assert files_below(folder) == []


def test_large_content_is_written_and_read(folder: str) -> None:
    storage = storage_in(folder)
    file = storage.write("counts", BIG)
    assert file.uri.startswith(child_uri(folder, "chk-7", "map-0-1-counts-"))
    assert (file.content, file.size_bytes, file.is_shared) == (b"", len(BIG), False)
    assert StateReader().read(file) == BIG
    assert storage.written_bytes == len(BIG)


def test_the_threshold_says_what_is_small(folder: str) -> None:
    storage = storage_in(folder, **{DATA_INLINE_THRESHOLD.key: "4"})
    assert storage.write("three", b"abc").uri == ""
    assert storage.write("four", b"abcd").uri != ""


def test_shared_files_lie_apart(folder: str) -> None:
    file = storage_in(folder).write("sst", BIG, is_shared=True)
    assert file.is_shared
    assert file.uri.startswith(child_uri(folder, "shared", "map-0-1-sst-"))


def test_two_files_of_one_name_are_two(folder: str) -> None:
    storage = storage_in(folder)
    assert storage.write("x", BIG).uri != storage.write("x", BIG).uri


def test_names_of_states_need_not_be_names_of_files(folder: str) -> None:
    file = storage_in(folder).write("über/../all the counts?", BIG)
    assert file.uri.startswith(child_uri(folder, "chk-7", "map-0-1-_ber_.._all_the_counts_-"))


def test_files_of_this_machine_are_streamed_there_and_back(folder: str, tmp_path: Path) -> None:
    source, target = tmp_path / "000012.sst", tmp_path / "back.sst"
    source.write_bytes(BIG * 40)
    file = storage_in(folder).write_file("sst", str(source), is_shared=True)
    assert (file.size_bytes, file.digest) == (len(BIG) * 40, digest_of(BIG * 40))
    StateReader().fetch(file, str(target))
    assert target.read_bytes() == BIG * 40


def test_a_small_file_comes_back_from_its_handle(folder: str, tmp_path: Path) -> None:
    (tmp_path / "small").write_bytes(b"s")
    file = storage_in(folder).write_file("small", str(tmp_path / "small"))
    assert file.content == b"s"
    StateReader().fetch(file, str(tmp_path / "back"))
    assert (tmp_path / "back").read_bytes() == b"s"


def test_content_that_changed_is_never_handed_out(folder: str, tmp_path: Path) -> None:
    file = storage_in(folder).write("counts", BIG)
    wrong = StateFile(child_uri(folder, "other"), b"", file.size_bytes, file.digest)
    write_new(wrong.uri, [b"!" + BIG[1:]])
    with pytest.raises(CheckpointCorruptedError, match="digest"):
        StateReader().read(wrong)
    with pytest.raises(CheckpointCorruptedError, match="other"):
        StateReader().fetch(wrong, str(tmp_path / "back"))
    assert not list(tmp_path.glob("back*"))


def test_content_that_was_cut_off_says_how_long_it_was(folder: str) -> None:
    file = storage_in(folder).write("counts", BIG)
    cut = StateFile(child_uri(folder, "cut"), b"", file.size_bytes, file.digest)
    write_new(cut.uri, [BIG[:-1]])
    with pytest.raises(CheckpointCorruptedError, match="51199 bytes, but had 51200"):
        StateReader().read(cut)


def test_a_file_that_is_gone_is_named(folder: str) -> None:
    gone = StateFile(child_uri(folder, "chk-7", "gone"), b"", 3, digest_of(b"few"))
    with pytest.raises(CheckpointStorageError, match=r"cannot read .*gone"):
        StateReader().read(gone)


def test_a_folder_that_cannot_be_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(
        CheckpointStorageError, match=r"cannot write .*file.*Not a directory.*name a folder"
    ):
        storage_in(str(tmp_path / "file")).write("x", BIG)


def test_the_driver_keeps_only_what_fits_into_its_memory() -> None:
    storage = SubtaskStorage(CheckpointOptions(), "map-0-1", Settings())
    assert storage.write("x", BIG).content == BIG
    with pytest.raises(CheckpointStorageError, match=r"set execution\.checkpointing\.dir"):
        storage.write("x", bytes(IN_MEMORY_MAX + 1))


def test_a_source_that_breaks_off_leaves_no_file(folder: str) -> None:
    def broken():
        yield BIG
        raise OSError(28, "No space left on device")

    with pytest.raises(CheckpointStorageError, match="free space there"):
        write_new(child_uri(folder, "half"), broken())
    assert files_below(folder) == []


@given(content=st.binary(max_size=200), threshold=st.integers(0, 100))
def test_whatever_is_written_is_read(
    content: bytes, threshold: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = str(tmp_path_factory.getbasetemp() / "whatever")
    options = CheckpointOptions(exclusive_uri=folder)
    storage = SubtaskStorage(options, "p", Settings({DATA_INLINE_THRESHOLD.key: str(threshold)}))
    file = storage.write("x", memoryview(content))
    assert (file.uri == "") == (len(content) < threshold)
    assert StateReader().read(file) == content


def test_options_of_a_file_system_stay_at_the_end_of_its_uris() -> None:
    uri = "s3://bucket/a?region=eu-west-1"
    assert child_uri(uri, "chk-1", "x") == "s3://bucket/a/chk-1/x?region=eu-west-1"
    assert child_uri("s3://bucket/a", "x") == "s3://bucket/a/x"
    assert child_uri("hdfs:///a?user=me", "x") == "hdfs:///a/x?user=me"
    assert parent_uri(uri) == "s3://bucket?region=eu-west-1"
    assert (file_name_of(uri), file_name_of("folder/what?")) == ("a", "what?")
    assert child_uri("folder/what?", "x") == "folder/what?/x"


def test_reading_gives_the_bytes_of_the_file(folder: str) -> None:
    write_new(child_uri(folder, "x"), [b"ab", memoryview(b"cd")])
    assert read_all(child_uri(folder, "x")) == b"abcd"


def test_a_savepoint_shares_nothing(folder: str) -> None:
    options = CheckpointOptions(exclusive_uri=child_uri(folder, "savepoint-1"))
    file = SubtaskStorage(options, "p", Settings()).write("sst", BIG, is_shared=True)
    assert not file.is_shared
    assert file.uri.startswith(child_uri(folder, "savepoint-1"))


def test_a_file_is_removed_and_one_that_is_gone_is_none(folder: str) -> None:
    uri = child_uri(folder, "file")
    write_new(uri, [b"x"])
    remove_file(uri)
    assert files_below(folder) == []
    remove_file(uri)
    remove_file(child_uri(folder, "no-folder", "file"))


@pytest.mark.parametrize("misses", [0, 1, 3])
def test_a_folder_that_is_made_while_it_is_listed_is_listed(tmp_path: Path, misses: int) -> None:
    # Arrow lists, finds nothing, and looks whether the folder is really missing: now it is there.
    class Hasty:
        def __init__(self) -> None:
            self.misses = misses

        def get_file_info(self, selector: fs.FileSelector) -> list[fs.FileInfo]:
            assert selector.allow_not_found
            if self.misses:
                self.misses -= 1
                raise FileNotFoundError(selector.base_dir)
            return fs.LocalFileSystem().get_file_info(selector)

    (tmp_path / "inner").mkdir()
    assert [info.base_name for info in folder_entries(Hasty(), str(tmp_path))] == ["inner"]
    assert folder_entries(Hasty(), str(tmp_path / "missing")) == []


def test_a_folder_that_comes_and_goes_all_the_time_is_an_error(tmp_path: Path) -> None:
    class Restless:
        def get_file_info(self, selector: fs.FileSelector) -> list[fs.FileInfo]:
            raise FileNotFoundError(selector.base_dir)

    with pytest.raises(FileNotFoundError):
        folder_entries(Restless(), str(tmp_path))


def test_no_package_is_asked_what_a_local_file_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(file_systems, "_installed", asked.append)
    assert not file_systems.is_there(f"file://{tmp_path}/nothing/there")
    assert asked == []
    with pytest.raises(CheckpointStorageError):
        file_systems.is_there("nosuchscheme://host/folder/file")
    assert asked == ["nosuchscheme"]
