"""One shuffle service at a time in a directory."""

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from headrace.core.errors import ConfigurationError
from headrace.core.ids import JobId
from headrace.shuffle_service.errors import DirectoryInUseError
from headrace.shuffle_service.partition_store import DirectoryLock
from tests.unit.shuffle_service.new_services import new_service


def test_a_second_service_is_refused_and_deletes_nothing_of_the_first_one(tmp_path: Path) -> None:
    first, second = new_service(tmp_path, 1), new_service(tmp_path, 2)
    first.start()
    try:
        pushed = tmp_path / str(JobId(b"j" * 16)) / "11-0-22-0-0.data"
        pushed.parent.mkdir()
        pushed.write_bytes(b"in flight")
        with pytest.raises(DirectoryInUseError, match=rf"process {os.getpid()} on .*{tmp_path}"):
            second.start()
        second.close()
        assert pushed.read_bytes() == b"in flight"
        # What the refused one closed is not the first one's lock.
        with pytest.raises(DirectoryInUseError):
            DirectoryLock.take(tmp_path)
    finally:
        first.close()


def test_a_service_that_has_ended_leaves_its_directory_to_the_next(tmp_path: Path) -> None:
    first, second = new_service(tmp_path, 1), new_service(tmp_path, 2)
    first.start()
    first.close()
    second.start()
    second.close()
    assert first.name == second.name


def test_a_service_that_could_not_listen_leaves_its_directory_to_the_next(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="no socket"):
        fail_to_listen(tmp_path)
    DirectoryLock.take(tmp_path).release()


def fail_to_listen(directory: Path) -> None:
    class Deaf:
        def start(self, host: Any) -> None:
            raise OSError("no socket")

        def close(self) -> None:
            pass

    service = new_service(directory, 1, transport=Deaf())
    try:
        service.start()
    finally:
        service.close()


def test_a_lock_on_a_full_disk_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: Any) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", full)
        held = DirectoryLock.take(tmp_path)
    with pytest.raises(DirectoryInUseError, match="another shuffle service keeps its results in"):
        DirectoryLock.take(tmp_path)
    held.release()
    held.release()
    DirectoryLock.take(tmp_path).release()


def test_a_directory_that_is_a_file_is_told_by_the_option_s_name(tmp_path: Path) -> None:
    place = tmp_path / "file"
    place.write_text("mine")
    with pytest.raises(ConfigurationError, match=r"shuffle-service\.directory.*File exists"):
        DirectoryLock.take(place)


def test_a_file_system_without_locks_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: Any) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.flock", refuse)
    with pytest.raises(ConfigurationError, match="cannot be locked: No locks available"):
        DirectoryLock.take(tmp_path)


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o777, 0o1777])
def test_a_directory_in_which_others_may_write_is_refused(tmp_path: Path, mode: int) -> None:
    directory = tmp_path / "open"
    directory.mkdir()
    directory.chmod(mode)
    with pytest.raises(
        ConfigurationError, match="users other than the owner may write there: chmod"
    ):
        new_service(directory, 1).start()
    assert list(directory.iterdir()) == []


def test_a_directory_that_belongs_to_somebody_else_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: tmp_path.stat().st_uid + 1)
    with pytest.raises(ConfigurationError, match="the directory belongs to another user"):
        new_service(tmp_path, 1).start()


def test_a_directory_that_anybody_may_exchange_is_refused(tmp_path: Path) -> None:
    directory = tmp_path / "open" / "results"
    directory.mkdir(parents=True, mode=0o700)
    directory.parent.chmod(0o777)
    with pytest.raises(ConfigurationError, match="everybody may rename its files"):
        new_service(directory, 1).start()
    directory.parent.chmod(0o1777)
    service = new_service(directory, 1)
    service.start()
    service.close()


def test_a_directory_below_somebody_else_s_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = tmp_path / "theirs" / "results"
    directory.mkdir(parents=True, mode=0o700)
    stat_of = Path.stat

    def of_somebody_else(path: Path, **options: Any) -> os.stat_result:
        found = stat_of(path, **options)
        return os.stat_result((*found[:4], 12345, *found[5:])) if path.name == "theirs" else found

    with monkeypatch.context() as foreign:
        foreign.setattr(Path, "stat", of_somebody_else)
        with pytest.raises(ConfigurationError, match=r"another user \(12345\) may rename"):
            new_service(directory, 1).start()


def test_a_link_in_the_place_of_the_lock_is_not_followed(tmp_path: Path) -> None:
    directory, precious = tmp_path / "results", tmp_path / "precious"
    directory.mkdir(mode=0o700)
    precious.write_text("mine")
    (directory / "lock").symlink_to(precious)
    with pytest.raises(ConfigurationError, match="cannot write to this directory"):
        new_service(directory, 1).start()
    assert precious.read_text() == "mine"
