"""Lists of log files and pieces of them, for names that come from anywhere; and the folders that they lie in."""

import os
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.config import Settings
from headrace.core.errors import ConfigurationError
from headrace.core.ids import ResourceId
from headrace.core.process.log_files import (
    PIECE_SIZE_MAX_BYTES,
    LogFileNotFoundError,
    delete_log_files,
    log_files,
    named_log_folder,
    private_folder,
    read_log_file,
    read_log_file_of,
    task_manager_file_name,
)

NOW_MS = 1_800_000_000_000


def names(folder: Path, process_name: str = "") -> set[str]:
    return {file.name for file in log_files(folder, process_name)}


def test_files_are_listed_newest_first_with_size_and_time(tmp_path: Path) -> None:
    for name, size, modified_s in (("old.log", 3, 1_000), ("new.log", 5, 2_000)):
        (tmp_path / name).write_bytes(b"x" * size)
        os.utime(tmp_path / name, (modified_s, modified_s))
    listed = [(file.name, file.size_bytes, file.modified_ms) for file in log_files(tmp_path)]
    assert listed == [("new.log", 5, 2_000_000), ("old.log", 3, 1_000_000)]


def test_a_folder_that_is_gone_has_no_files(tmp_path: Path) -> None:
    assert log_files(tmp_path / "gone") == ()


def test_links_folders_and_pipes_are_no_log_files(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text("a")
    (tmp_path / "link.log").symlink_to(tmp_path / "a.log")
    (tmp_path / "folder.log").mkdir()
    os.mkfifo(tmp_path / "pipe.log")
    assert names(tmp_path) == {"a.log"}
    for name in ("link.log", "folder.log", "pipe.log"):
        with pytest.raises(LogFileNotFoundError):
            read_log_file(tmp_path, name)


def test_a_process_has_the_files_of_its_name_and_no_other_ones(tmp_path: Path) -> None:
    for name in ("taskmanager-a-1.log", "taskmanager-a-1.log.2", "taskmanager-a-12.log"):
        (tmp_path / name).write_text(name)
    assert names(tmp_path, "taskmanager-a-1") == {"taskmanager-a-1.log", "taskmanager-a-1.log.2"}
    piece = read_log_file_of(tmp_path, "taskmanager-a-1", "taskmanager-a-1.log", 0, 100)
    assert piece.content == b"taskmanager-a-1.log"
    with pytest.raises(LogFileNotFoundError):
        read_log_file_of(tmp_path, "taskmanager-a-1", "taskmanager-a-12.log", 0, 100)


def test_files_of_one_process_are_deleted_alone(tmp_path: Path) -> None:
    for name in ("taskmanager-a-1.log", "taskmanager-a-1.out", "taskmanager-a-12.log"):
        (tmp_path / name).write_text(name)
    delete_log_files(tmp_path, "taskmanager-a-1")
    assert names(tmp_path) == {"taskmanager-a-12.log"}


def test_a_name_of_a_task_manager_makes_no_path() -> None:
    assert task_manager_file_name(ResourceId("../a/b:1 c")) == "taskmanager-.._a_b_1_c"
    assert (
        task_manager_file_name(ResourceId("headrace-7-ab-tm-1")) == "taskmanager-headrace-7-ab-tm-1"
    )


@pytest.mark.parametrize(
    "name", ["", ".", "..", "../secret", "/etc/passwd", "a/../../secret", "a\0b", "folder/a.log"]
)
def test_a_name_that_leads_elsewhere_is_refused(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "logs"
    (folder / "folder").mkdir(parents=True)
    (folder / "folder" / "a.log").write_text("below")
    (tmp_path / "secret").write_text("secret")
    with pytest.raises(LogFileNotFoundError):
        read_log_file(folder, name)


@given(st.text(max_size=30))
def test_no_name_but_that_of_a_file_gives_content(name: str) -> None:
    folder = Path(__file__).parent
    known = {file.name for file in log_files(folder)}
    try:
        piece = read_log_file(folder, name, 0, 1)
    except LogFileNotFoundError:
        assert name not in known
    else:
        assert name in known and len(piece.content) == 1


def test_a_piece_tells_where_it_begins_and_how_long_the_file_is(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_bytes(b"0123456789")
    piece = read_log_file(tmp_path, "a.log", 2, 3)
    assert (piece.offset, piece.size_bytes, piece.content) == (2, 10, b"234")


@pytest.mark.parametrize(
    ("offset", "begin", "content"),
    [(-3, 7, b"789"), (-100, 0, b"0123456789"), (10, 10, b""), (99, 10, b"")],
)
def test_an_offset_may_count_from_the_end_or_lie_behind_it(
    tmp_path: Path, offset: int, begin: int, content: bytes
) -> None:
    (tmp_path / "a.log").write_bytes(b"0123456789")
    piece = read_log_file(tmp_path, "a.log", offset, 100)
    assert (piece.offset, piece.content) == (begin, content)


def test_a_piece_is_bounded_whatever_is_asked_for(tmp_path: Path) -> None:
    with (tmp_path / "a.log").open("wb") as file:
        file.truncate(3 * PIECE_SIZE_MAX_BYTES)
    assert len(read_log_file(tmp_path, "a.log", 0, 1 << 40).content) == PIECE_SIZE_MAX_BYTES
    assert read_log_file(tmp_path, "a.log", 0, -5).content == b""


def test_pieces_one_after_the_other_make_the_file(tmp_path: Path) -> None:
    whole = bytes(range(256)) * 7
    (tmp_path / "a.log").write_bytes(whole)
    found = b""
    while (piece := read_log_file(tmp_path, "a.log", len(found), 100)).content:
        found += piece.content
    assert found == whole


def test_a_folder_for_one_s_own_logs_is_private(tmp_path: Path) -> None:
    assert named_log_folder(Settings({}), NOW_MS) is None
    folder = private_folder(tmp_path / "deep" / "logs")
    assert folder == private_folder(folder)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_each_cluster_has_a_folder_of_its_own_where_the_user_wants_it(tmp_path: Path) -> None:
    settings = Settings({"env.log.dir": str(tmp_path / "wanted")})
    folders = [named_log_folder(settings, NOW_MS) for _ in range(2)]
    name = f"headrace-20270115-080000-{os.getpid()}"
    assert [folder.name for folder in folders] == [name, f"{name}-1"]
    assert {folder.parent for folder in folders} == {tmp_path / "wanted"}
    assert {stat.S_IMODE(folder.stat().st_mode) for folder in folders} == {0o700}


def test_a_log_folder_that_cannot_be_made_is_a_wrong_setting(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    settings = Settings({"env.log.dir": str(tmp_path / "file" / "logs")})
    with pytest.raises(ConfigurationError, match=r"env\.log\.dir.*Not a directory"):
        named_log_folder(settings, NOW_MS)


def test_a_folder_that_is_a_link_or_open_to_others_is_not_private(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir(0o700)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with pytest.raises(PermissionError, match="is a link"):
        private_folder(tmp_path / "link")
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    with pytest.raises(PermissionError, match="other users may write"):
        private_folder(tmp_path / "open")
    assert private_folder(tmp_path / "real") == tmp_path / "real"
