"""Leases of readers against clean-up, on a clock that the test moves."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.checkpoint import held_deletions, savepoint_disposal
from headrace.checkpoint.checkpoint_storage import publish_metadata
from headrace.checkpoint.cleaner import CheckpointCleaner
from headrace.checkpoint.completed_store import CompletedCheckpoints
from headrace.checkpoint.errors import (
    CheckpointStorageError,
    SnapshotLeasedError,
    SnapshotSubsumedError,
)
from headrace.checkpoint.file_systems import (
    child_uri,
    files_below,
    is_there,
    remove_file,
    write_new,
)
from headrace.checkpoint.held_deletions import HELD_MAX
from headrace.checkpoint.leases import (
    LEASE_DURATION_MS,
    LEASES_FOLDER,
    Lease,
    LeaseRecord,
    explained,
    live_leases,
    take_lease,
)
from headrace.checkpoint.metadata_format import METADATA_NAME
from headrace.checkpoint.metadata_key import metadata_key
from headrace.checkpoint.options import KEY_FILE
from headrace.checkpoint.orphans import orphans_in
from headrace.checkpoint.savepoint_disposal import dispose_savepoint
from headrace.core.checkpoints import SnapshotKind
from headrace.core.clock import ManualClock
from headrace.core.config import Settings
from tests.unit.checkpoint.snapshots import KEY, metadata_of, stored


class Job:
    """A job that keeps one checkpoint; each has a file of its own, and may refer to shared ones."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.clock = ManualClock(1_000_000)
        self.completed = CompletedCheckpoints(1)
        self._cleaner = CheckpointCleaner(1, start=lambda _, body: body(), clock=self.clock)

    def complete(self, number: int, *shared: str) -> str:
        """Complete a checkpoint, whereupon the one before is given up; return its folder."""
        uri = self.uri(number)
        names = [child_uri(self.folder, "shared", name) for name in shared]
        for name in names:
            if not is_there(name):
                write_new(name, [b"content"])
        own = child_uri(uri, "state")
        write_new(own, [b"content"])
        files = [stored(own), *(stored(name, is_shared=True) for name in names)]
        published = publish_metadata(metadata_of(number, *files), uri, KEY)
        for deletion in self.completed.add(published):
            self._cleaner.delete(deletion)
        assert self._cleaner.waiting_count == 0
        return uri

    def uri(self, number: int) -> str:
        return child_uri(self.folder, f"chk-{number}")

    def files(self) -> list[str]:
        """All but leases."""
        found = [one.relative_path for one in files_below(self.folder)]
        return [name for name in found if LEASES_FOLDER not in name]

    def lease(self, number: int) -> Lease:
        taken = take_lease(self.uri(number), "a test", clock=self.clock)
        assert taken is not None
        return taken


@pytest.fixture
def job(folder: str) -> Job:
    return Job(folder)


def files_of(number: int) -> list[str]:
    return [f"chk-{number}/_metadata", f"chk-{number}/state"]


def test_what_is_read_stays_until_it_is_given_back(job: Job) -> None:
    job.complete(1)
    lease = job.lease(1)
    job.complete(2)
    assert job.files() == files_of(1) + files_of(2)
    job.complete(3)
    assert job.files() == files_of(1) + files_of(3)
    lease.give_back()
    job.complete(4)
    assert job.files() == files_of(4)


def test_of_a_reader_that_was_killed_the_lease_ends_and_the_files_go(job: Job) -> None:
    job.complete(1)
    job.lease(1)
    job.clock.advance_ms(LEASE_DURATION_MS - 1)
    job.complete(2)
    assert job.files() == files_of(1) + files_of(2)
    job.clock.advance_ms(1)
    job.complete(3)
    assert job.files() == files_of(3)


def test_a_reader_that_lives_keeps_what_it_reads_for_as_long_as_it_likes(job: Job) -> None:
    job.complete(1)
    lease = job.lease(1)
    for number in range(2, 12):
        job.clock.advance_ms(LEASE_DURATION_MS // 2)
        lease = lease.renewed(is_certain=False)
        job.complete(number)
        assert job.files() == sorted(files_of(1) + files_of(number))


def test_shared_files_of_what_is_read_stay_though_a_later_one_was_the_last_to_need_them(
    job: Job,
) -> None:
    job.complete(1, "a", "b")
    lease = job.lease(1)
    job.complete(2, "b", "c")
    job.complete(3, "c")
    assert job.files() == [*files_of(1), *files_of(3), "shared/a", "shared/b", "shared/c"]
    job.complete(4)
    assert job.files() == [*files_of(1), *files_of(4), "shared/a", "shared/b"]
    lease.give_back()
    job.complete(5)
    assert job.files() == files_of(5)


def test_of_very_many_that_are_read_the_oldest_goes(job: Job) -> None:
    for number in range(1, HELD_MAX + 3):
        job.complete(number)
        job.lease(number)
    job.complete(HELD_MAX + 3)
    assert not is_there(job.uri(1))
    assert not is_there(job.uri(2))
    assert is_there(job.uri(3))


def test_nobody_begins_to_read_what_is_gone(job: Job) -> None:
    for number in (1, 2, 3):
        job.complete(number)
    with pytest.raises(SnapshotSubsumedError, match="the oldest that is still there is 3") as told:
        take_lease(job.uri(1), "a test", clock=job.clock)
    assert told.value.oldest_id == 3
    assert not is_there(job.uri(1))


def test_a_reader_and_clean_up_in_the_same_moment_see_each_other(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever is put between two steps of the other, either the reader is refused or its files stay."""
    job.complete(1)

    def remove_with_a_reader_before(uri: str) -> None:
        if uri.endswith(METADATA_NAME):
            job.lease(1)
        remove_file(uri)

    with monkeypatch.context() as patched:
        patched.setattr(held_deletions, "remove_file", remove_with_a_reader_before)
        job.complete(2)
    assert "chk-1/state" in job.files()
    job.clock.advance_ms(LEASE_DURATION_MS)
    job.complete(3)
    assert job.files() == files_of(3)

    original: Callable[..., None] = Lease.write

    def write_and_be_cleaned_up(lease: Lease, now_ms: int) -> None:
        monkeypatch.setattr(Lease, "write", original)
        job.complete(4)
        original(lease, now_ms)

    monkeypatch.setattr(Lease, "write", write_and_be_cleaned_up)
    with pytest.raises(SnapshotSubsumedError):
        take_lease(job.uri(3), "a test", clock=job.clock)
    assert job.files() == files_of(4)


def test_a_reader_that_slept_too_long_is_told_so(job: Job) -> None:
    job.complete(1)
    lease = job.lease(1)
    job.clock.advance_ms(LEASE_DURATION_MS)
    assert lease.renewed() != lease
    job.clock.advance_ms(LEASE_DURATION_MS)
    job.complete(2)
    with pytest.raises(SnapshotSubsumedError, match="was subsumed since"):
        lease.renewed(is_certain=False)
    assert live_leases(job.uri(1), job.clock.now_ms()) == []


def test_the_last_part_that_is_done_gives_the_lease_back(job: Job) -> None:
    uri = job.complete(1)
    taken = job.lease(1)
    lease = Lease(uri, taken.token, "a test", taken.duration_ms, 0, part_count=2, clock=job.clock)
    lease.part_done(1)
    lease.part_done(1)  # a task that Spark runs twice
    assert len(live_leases(uri, job.clock.now_ms())) == 1
    lease.part_done(0)
    assert live_leases(uri, job.clock.now_ms()) == []
    assert files_below(child_uri(uri, LEASES_FOLDER)) == []


def test_what_killed_readers_left_goes_with_the_next_one(job: Job) -> None:
    uri = job.complete(1)
    killed = job.lease(1)
    Lease(uri, killed.token, "x", 1, 0, part_count=9, clock=job.clock).part_done(4)
    job.clock.advance_ms(LEASE_DURATION_MS)
    job.lease(1)
    (left,) = files_below(child_uri(uri, LEASES_FOLDER))
    assert killed.token not in left.relative_path


@pytest.mark.skipif(os.getuid() == 0, reason="root may write everywhere")
def test_who_may_not_write_reads_without_a_lease(tmp_path: Path) -> None:
    job = Job(str(tmp_path))
    folder = Path(job.complete(1))
    folder.chmod(0o500)
    try:
        assert take_lease(str(folder), "a test", clock=job.clock) is None
    finally:
        folder.chmod(0o700)


def test_without_the_right_to_write_there_is_no_lease(
    job: Job, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    uri = job.complete(1)

    def refuse(lease: Lease, now_ms: int) -> None:
        raise CheckpointStorageError("write", lease.snapshot_uri, "permission denied")

    monkeypatch.setattr(Lease, "write", refuse)
    assert take_lease(uri, "a test", clock=job.clock) is None
    assert "is read without a lease" in caplog.text
    job.complete(2)
    missing = CheckpointStorageError("read", child_uri(uri, "state"), "no such file")
    assert "was subsumed since" in str(explained(missing, uri))


def test_a_file_that_is_missing_from_a_snapshot_that_is_there_was_not_subsumed(job: Job) -> None:
    uri = job.complete(1)
    remove_file(child_uri(uri, "state"))
    missing = CheckpointStorageError("read", child_uri(uri, "state"), "no such file")
    assert explained(missing, uri) is missing


def test_leases_on_complete_checkpoints_are_no_orphans(job: Job) -> None:
    uri = job.complete(1)
    job.lease(1)
    write_new(child_uri(job.folder, "chk-2", LEASES_FOLDER, "old"), [b"{}"])
    (orphan,) = orphans_in(files_below(job.folder), job.completed.all)
    assert orphan.relative_path.startswith("chk-2/")
    assert live_leases(uri, job.clock.now_ms()) == [
        LeaseRecord(job.clock.now_ms() + LEASE_DURATION_MS, "a test")
    ]


def test_a_savepoint_that_is_read_is_not_disposed_of(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, clock = Settings({KEY_FILE.key: str(tmp_path / "key")}), ManualClock(1_000_000)
    uri = child_uri(folder, "savepoint-1")
    publish_metadata(metadata_of(7, kind=SnapshotKind.SAVEPOINT), uri, metadata_key(settings))
    lease = take_lease(uri, "query 12 of host a", clock=clock)
    assert lease is not None
    with pytest.raises(SnapshotLeasedError, match=r"is being read by query 12 of host a, .* 300 s"):
        dispose_savepoint(uri, settings, clock)
    lease.give_back()

    def remove_with_a_reader_before(removed: str) -> None:
        take_lease(uri, "a late reader", clock=clock)
        remove_file(removed)

    with monkeypatch.context() as patched:
        patched.setattr(savepoint_disposal, "remove_file", remove_with_a_reader_before)
        with pytest.raises(SnapshotLeasedError, match="a late reader"):
            dispose_savepoint(uri, settings, clock)
    assert is_there(child_uri(uri, METADATA_NAME))
    clock.advance_ms(LEASE_DURATION_MS)
    dispose_savepoint(uri, settings, clock)
    assert not is_there(uri)
