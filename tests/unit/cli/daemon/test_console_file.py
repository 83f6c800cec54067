"""ConsoleFile: what a daemon and its children print is kept, up to a bound."""

import os
import stat
from pathlib import Path

import pytest

from headrace.cli.daemon.console_file import NAME, ConsoleFile, last_lines, open_console
from testkit.waiting import wait_until


def test_the_file_is_for_its_owner_alone_and_not_one_that_was_there(tmp_path: Path) -> None:
    os.close(open_console(tmp_path))
    assert stat.S_IMODE((tmp_path / NAME).stat().st_mode) == 0o600
    with pytest.raises(FileExistsError):
        open_console(tmp_path)


def test_a_full_file_is_cut_and_those_who_write_go_on_at_its_new_end(tmp_path: Path) -> None:
    descriptor = open_console(tmp_path)
    console = ConsoleFile(tmp_path, 10, check_s=0.001)
    try:
        os.write(descriptor, b"much more than ten\n")
        wait_until(lambda: (tmp_path / NAME).stat().st_size == 0)
        os.write(descriptor, b"new\n")
    finally:
        console.close()
        os.close(descriptor)
    assert (tmp_path / NAME).read_bytes() == b"new\n"
    assert (tmp_path / f"{NAME}.1").read_bytes() == b"much more than ten\n"
    assert stat.S_IMODE((tmp_path / f"{NAME}.1").stat().st_mode) == 0o600


def test_the_last_lines_are_those_with_text(tmp_path: Path) -> None:
    (tmp_path / NAME).write_text("one\ntwo\n\nthree\n\n")
    assert last_lines(tmp_path, 2) == ["two", "three"]
    assert last_lines(tmp_path, 9, bytes_max=8) == ["three"]
    assert last_lines(tmp_path / "nowhere", 2) == []
