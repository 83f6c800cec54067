"""Log folders of ended clusters: they go by number and age; those in use, and what only looks like one, stay."""

import logging
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.cli.daemon.console_file import ConsoleFile, open_console
from headrace.core.config import Settings
from headrace.core.process.log_files import named_log_folder
from headrace.core.process.process_log import ProcessLog

NOW_MS = time.time_ns() // 1_000_000
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS

Make = Callable[[int, int], Path]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    def made(number: int, age_ms: int) -> Path:
        """A folder of an ended cluster with one file, last written `age_ms` ago."""
        folder = tmp_path / f"headrace-20260101-000000-{number}"
        folder.mkdir()
        (folder / "jobmanager.log").write_text("lines")
        for path in (folder / "jobmanager.log", folder):
            set_age(path, age_ms)
        return folder

    return made


def set_age(path: Path, age_ms: int) -> None:
    written_s = (NOW_MS - age_ms) / 1000
    os.utime(path, (written_s, written_s), follow_symlinks=False)


def start(parent: Path, **options: str) -> Path:
    found = named_log_folder(Settings({"env.log.dir": str(parent), **options}), NOW_MS)
    assert found is not None
    return found


def test_the_newest_folders_stay_and_their_removal_is_told_once(
    tmp_path: Path, make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    old = [make(number, (10 + number) * DAY_MS) for number in range(4)]
    with caplog.at_level(logging.WARNING):
        new = start(tmp_path, **{"headrace.log.folders-max": "3"})
        start(tmp_path, **{"headrace.log.folders-max": "4"})
    assert [folder.exists() for folder in old] == [True, True, False, False]
    assert new.is_dir()
    [told] = caplog.messages
    assert told.startswith("removed 2 log folders of ended clusters")


def test_folders_that_are_too_old_go_however_few_they_are(tmp_path: Path, make: Make) -> None:
    old, young = make(1, 100 * DAY_MS), make(2, 80 * DAY_MS)
    start(tmp_path)
    assert not old.exists()
    assert young.is_dir()


def test_the_folder_of_a_cluster_that_runs_stays_until_it_ends(tmp_path: Path, make: Make) -> None:
    folder = make(1, 100 * DAY_MS)
    log = ProcessLog(folder, "jobmanager", Settings({}))
    for path in (*folder.iterdir(), folder):
        set_age(path, 100 * DAY_MS)
    start(tmp_path)
    assert folder.is_dir()
    log.close()
    start(tmp_path)
    assert not folder.exists()


def test_a_folder_for_which_somebody_may_just_start_stays(tmp_path: Path, make: Make) -> None:
    folders = [make(number, 60_000) for number in range(3)]
    start(tmp_path, **{"headrace.log.folders-max": "1"})
    assert all(folder.is_dir() for folder in folders)


def test_links_and_folders_of_other_names_are_left_alone(tmp_path: Path, make: Make) -> None:
    parent, elsewhere = tmp_path / "logs", tmp_path / "elsewhere"
    for folder in (parent, elsewhere):
        folder.mkdir()
    (elsewhere / "precious").write_text("kept")
    (parent / "headrace-20260101-000000-7").symlink_to(elsewhere)
    (parent / "mine").mkdir()
    inner = parent / "headrace-20260101-000000-8"
    make(8, 100 * DAY_MS).rename(inner)
    (inner / "link").symlink_to(elsewhere)
    for path in (inner / "link", parent / "mine"):
        set_age(path, 100 * DAY_MS)
    set_age(inner, 100 * DAY_MS)
    start(parent)
    assert (elsewhere / "precious").read_text() == "kept"
    assert (parent / "headrace-20260101-000000-7").is_symlink()
    assert (parent / "mine").is_dir()
    assert not inner.exists()


def test_the_folder_of_a_daemon_without_a_cluster_of_its_own_stays(
    tmp_path: Path, make: Make
) -> None:
    folder = make(1, 100 * DAY_MS)
    os.close(open_console(folder))
    console = ConsoleFile(folder, 1 << 20)
    for path in (*folder.iterdir(), folder):
        set_age(path, 100 * DAY_MS)
    start(tmp_path)
    assert folder.is_dir()
    console.close()
    start(tmp_path)
    assert not folder.exists()


def test_a_cleaning_that_fails_refuses_no_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(parent: Path) -> object:
        raise PermissionError("not yours")

    monkeypatch.setattr("headrace.core.process.log_files.os.scandir", broken)
    assert start(tmp_path).is_dir()
    assert "old log folders" in caplog.text and "not yours" in caplog.text
