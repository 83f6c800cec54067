"""Files that are put aside when they are full, and disks that take nothing."""

import errno
import logging
import os
import stat
from pathlib import Path

import pytest

from headrace.core.process import rotating_file
from headrace.core.process.rotating_file import RotatingFile


def test_a_full_file_is_put_aside_and_the_oldest_goes(tmp_path: Path) -> None:
    file = RotatingFile(tmp_path / "a.log", size_max_bytes=10, kept_count=2)
    for number in range(5):
        file.write(f"line {number}\n".encode())
    file.close()
    found = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert found == {"a.log": "line 4\n", "a.log.1": "line 3\n", "a.log.2": "line 2\n"}


def test_a_file_goes_where_none_is_to_be_kept(tmp_path: Path) -> None:
    file = RotatingFile(tmp_path / "a.log", size_max_bytes=10, kept_count=0)
    file.write(b"the first\n")
    file.write(b"the last\n")
    file.close()
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"a.log": "the last\n"}


def test_what_was_written_before_stays_in_front(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    for text in (b"of one process\n", b"of the next\n"):
        file = RotatingFile(path, size_max_bytes=1000, kept_count=1)
        file.write(text)
        file.close()
    assert path.read_text() == "of one process\nof the next\n"


def test_a_line_longer_than_a_file_may_be_is_written_whole(tmp_path: Path) -> None:
    file = RotatingFile(tmp_path / "a.log", size_max_bytes=10, kept_count=1)
    file.write(b"x" * 100)
    file.write(b"y")
    file.close()
    assert (tmp_path / "a.log.1").read_bytes() == b"x" * 100
    assert (tmp_path / "a.log").read_bytes() == b"y"


def test_files_are_for_their_owner_alone(tmp_path: Path) -> None:
    file = RotatingFile(tmp_path / "a.log", size_max_bytes=10, kept_count=1)
    file.write(b"x" * 10)
    file.write(b"y" * 10)
    file.close()
    modes = [stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()]
    assert modes == [0o600, 0o600]


def test_a_link_in_the_place_of_the_file_is_not_followed(tmp_path: Path) -> None:
    target = tmp_path / "precious"
    target.write_text("mine")
    (tmp_path / "a.log").symlink_to(target)
    file = RotatingFile(tmp_path / "a.log", size_max_bytes=1000, kept_count=1)
    file.write(b"not here\n")
    file.close()
    assert target.read_text() == "mine"


def test_trouble_is_told_once_and_so_is_its_end(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "gone" / "a.log"
    with caplog.at_level(logging.WARNING, "headrace.core.process.rotating_file"):
        file = RotatingFile(path, size_max_bytes=1000, kept_count=1)
        file.write(b"one\n")
        file.write(b"two\n")
        path.parent.mkdir()
        file.write(b"three\n")
        file.write(b"four\n")
    file.close()
    told = [record.getMessage() for record in caplog.records]
    assert told == [
        f"{path} cannot be written (No such file or directory): lines are dropped until it can",
        f"{path} can be written again",
    ]
    assert path.read_text() == (
        "\n[8 bytes are missing here: they could not be written]\nthree\nfour\n"
    )


def test_a_full_disk_neither_raises_nor_spoils_what_comes_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = RotatingFile(tmp_path / "a.log", size_max_bytes=1000, kept_count=1)
    file.write(b"before\n")

    def full(_: int, __: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(rotating_file.os, "write", full)
        file.write(b"lost\n")
    file.write(b"after\n")
    file.close()
    text = (tmp_path / "a.log").read_text()
    assert text == "before\n\n[5 bytes are missing here: they could not be written]\nafter\n"


def test_a_forked_process_appends_and_puts_nothing_aside(tmp_path: Path) -> None:
    file = RotatingFile(tmp_path / "a.log", size_max_bytes=10, kept_count=1)
    file.write(b"parent\n")
    child = os.fork()
    if not child:
        file.write(b"a child that writes more than fits\n")
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    found = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert found == {"a.log": "parent\na child that writes more than fits\n"}
    file.write(b"parent again\n")
    file.close()
    assert (tmp_path / "a.log").read_text() == "parent again\n"


def test_a_closed_file_takes_nothing(tmp_path: Path) -> None:
    file = RotatingFile(tmp_path / "a.log", size_max_bytes=1000, kept_count=1)
    file.close()
    file.close()
    file.write(b"late\n")
    assert (tmp_path / "a.log").read_bytes() == b""
