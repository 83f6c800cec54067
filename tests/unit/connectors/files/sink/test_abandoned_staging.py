"""Staging folders of jobs that were killed: swept by whoever writes there next, and never while somebody needs them."""

import os
import time
from pathlib import Path
from typing import Any

from pyarrow import fs

from headrace.connectors.files.sink.staging import (
    FORGOTTEN_MS,
    MARKER,
    QUIET_MS,
    StagingFolder,
    StagingLock,
    remove_if_spent,
    sweep_abandoned,
)

LOCAL: Any = fs.LocalFileSystem()
OWN = StagingFolder("a" * 16, 0, 0, "1" * 16)
OTHER = StagingFolder("b" * 16, 0, 0, "2" * 16)
FILES = ("x.inprogress", "y.pending")


def left_behind(base: Path, *names: str, folder: StagingFolder = OTHER) -> Path:
    path = base / folder.name
    path.mkdir()
    for name in names:
        (path / name).touch()
    return path


def later(milliseconds: int) -> int:
    """So long after what was just written."""
    return time.time_ns() // 1_000_000 + milliseconds + 1_000


def swept(base: Path, milliseconds: int) -> list[str]:
    """What is left below a sink's folder once another job writes there, so much later."""
    sweep_abandoned(LOCAL, str(base), OWN, later(milliseconds))
    return sorted(str(one.relative_to(base)) for one in base.rglob("*") if one.is_file())


def test_what_a_dead_writer_had_in_progress_goes_after_an_hour(tmp_path: Path) -> None:
    folder = left_behind(tmp_path, "x.inprogress")
    assert swept(tmp_path, QUIET_MS // 2) == [f"{folder.name}/x.inprogress"]
    assert swept(tmp_path, QUIET_MS) == []
    assert not folder.exists()


def test_what_it_had_completed_and_handed_over_to_nobody_goes_after_a_week(tmp_path: Path) -> None:
    folder = left_behind(tmp_path, *FILES)
    assert swept(tmp_path, FORGOTTEN_MS // 2) == [f"{folder.name}/y.pending"]
    assert swept(tmp_path, FORGOTTEN_MS) == []
    assert not folder.exists()


def test_what_it_handed_over_stays_as_long_as_the_checkpoints_are_there(tmp_path: Path) -> None:
    base, checkpoints = tmp_path / "out", tmp_path / "checkpoints" / "job"
    base.mkdir()
    checkpoints.mkdir(parents=True)
    folder = left_behind(base, *FILES)
    lock = StagingLock(LOCAL, str(folder))
    lock.mark_handed_over(str(checkpoints))
    kept = [f"{folder.name}/{MARKER}", f"{folder.name}/y.pending"]
    assert swept(base, 100 * FORGOTTEN_MS) == kept
    checkpoints.rmdir()
    assert swept(base, FORGOTTEN_MS // 2) == kept
    assert swept(base, FORGOTTEN_MS) == []
    assert not folder.exists()


def test_a_writer_that_lives_keeps_its_folder_however_long_it_is_quiet(tmp_path: Path) -> None:
    folder = left_behind(tmp_path, *FILES)
    lock = StagingLock(LOCAL, str(folder))
    lock.hold()
    both = [f"{folder.name}/{name}" for name in FILES]
    assert swept(tmp_path, 100 * FORGOTTEN_MS) == both
    lock.release()
    assert swept(tmp_path, 100 * FORGOTTEN_MS) == []


def test_a_writer_that_is_dropped_without_being_closed_lets_go_of_its_folder(
    tmp_path: Path,
) -> None:
    folder = left_behind(tmp_path, *FILES)
    lock = StagingLock(LOCAL, str(folder))
    lock.hold()
    del lock
    assert swept(tmp_path, 100 * FORGOTTEN_MS) == []


def test_a_lock_holds_the_folder_that_was_made_anew(tmp_path: Path) -> None:
    folder = left_behind(tmp_path)
    lock = StagingLock(LOCAL, str(folder))
    lock.hold()
    remove_if_spent(LOCAL, str(folder))
    assert not folder.exists()
    left_behind(tmp_path, "x.inprogress")
    lock.hold()
    assert swept(tmp_path, 100 * FORGOTTEN_MS) == [f"{folder.name}/x.inprogress"]
    lock.release()


def test_a_folder_that_changes_is_not_swept_where_locks_tell_nothing(tmp_path: Path) -> None:
    folder = left_behind(tmp_path, "x.inprogress")
    day_ms = 24 * QUIET_MS
    os.utime(folder, ns=(later(day_ms) * 1_000_000,) * 2)
    assert swept(tmp_path, day_ms) == [f"{folder.name}/x.inprogress"]


def test_a_folder_of_the_same_job_is_left_to_its_committer(tmp_path: Path) -> None:
    folder = left_behind(tmp_path, *FILES, folder=StagingFolder(OWN.owner, 3, 1, "3" * 16))
    assert swept(tmp_path, 100 * FORGOTTEN_MS) == [f"{folder.name}/{name}" for name in FILES]


def test_nothing_is_swept_behind_a_link_nor_of_other_names(tmp_path: Path) -> None:
    base, elsewhere = tmp_path / "out", tmp_path / "elsewhere"
    base.mkdir()
    elsewhere.mkdir()
    for name in FILES:
        (elsewhere / name).touch()
    (base / OTHER.name).symlink_to(elsewhere)
    (base / "part-0").touch()
    left_behind(base, "notes.txt", folder=StagingFolder("c" * 16, 0, 0, "4" * 16))
    assert len(swept(base, 100 * FORGOTTEN_MS)) == 2
    assert sorted(one.name for one in elsewhere.iterdir()) == list(FILES)


def test_what_a_merge_had_begun_goes_after_a_week(tmp_path: Path) -> None:
    (tmp_path / ".headrace-merging-part-0").touch()
    assert swept(tmp_path, FORGOTTEN_MS // 2) == [".headrace-merging-part-0"]
    assert swept(tmp_path, FORGOTTEN_MS) == []


def test_a_marker_alone_goes_with_its_folder_and_stays_beside_files(tmp_path: Path) -> None:
    folder = left_behind(tmp_path, MARKER)
    remove_if_spent(LOCAL, str(folder))
    assert not folder.exists()
    folder = left_behind(tmp_path, MARKER, "y.pending")
    remove_if_spent(LOCAL, str(folder))
    assert sorted(one.name for one in folder.iterdir()) == [MARKER, "y.pending"]
