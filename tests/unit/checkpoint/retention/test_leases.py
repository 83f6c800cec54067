"""Leases of readers against clean-up, on a clock that the test moves."""

from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.checkpoint.errors import (
    CheckpointStorageError,
    SnapshotLeasedError,
    SnapshotSubsumedError,
)
from headrace.checkpoint.options import KEY_FILE
from headrace.checkpoint.retention import cleaner
from headrace.checkpoint.retention.cleaner import CheckpointCleaner, dispose_savepoint, orphans_in
from headrace.checkpoint.retention.completed_store import CompletedCheckpointStore
from headrace.checkpoint.retention.leases import (
    LEASE_DURATION_MS,
    LEASES_FOLDER,
    Lease,
    LeaseRecord,
    explained,
    live_leases,
    take_lease,
)
from headrace.checkpoint.storage.checkpoint_storage import publish_metadata
from headrace.checkpoint.storage.file_systems import (
    child_uri,
    files_below,
    is_there,
    remove_file,
    replace_file,
    write_new,
)
from headrace.checkpoint.storage.metadata_format import METADATA_NAME
from headrace.checkpoint.storage.metadata_key import metadata_key
from headrace.core.barriers import SnapshotKind
from headrace.core.clock import ManualClock
from headrace.core.config import Settings
from tests.unit.checkpoint.snapshots import KEY, metadata_of, stored


class Job:
    """A job that keeps one checkpoint; each has a file of its own, and may refer to shared ones."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.clock = ManualClock(1_000_000)
        self.completed = CompletedCheckpointStore(1)
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


def test_of_very_many_that_are_read_the_oldest_goes(
    job: Job, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(cleaner, "HELD_MAX", 3)
    for number in range(1, 6):
        job.complete(number)
        job.lease(number)
    job.complete(6)
    assert not is_there(job.uri(1))
    assert not is_there(job.uri(2))
    assert is_there(job.uri(3))
    assert f"{job.uri(2)} is deleted although it is being read" in caplog.text


def test_what_waits_for_shared_files_alone_is_no_reader_too_many(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cleaner, "HELD_MAX", 3)
    names = [f"shared-{number}" for number in range(8)]
    job.complete(1, *names)
    job.lease(1)
    for number in range(2, 10):
        job.complete(number, *names[number - 1 :])
    assert is_there(job.uri(1))
    assert all(is_there(child_uri(job.folder, "shared", name)) for name in names)


def test_a_lease_that_cannot_be_read_holds_its_checkpoint_and_no_other(job: Job) -> None:
    uri = job.complete(1)
    lease = job.lease(1)
    file = child_uri(uri, LEASES_FOLDER, lease.token)
    for number, content in ((2, b""), (3, b'{"holder": "\xff"}'), (4, b"{}")):
        replace_file(file, content, "damaged")
        job.complete(number)
        assert job.files() == files_of(1) + files_of(number)
        assert "damaged" in live_leases(uri, job.clock.now_ms())[0].holder
    job.lease(1).give_back()
    assert is_there(file)
    lease.give_back()
    job.complete(5)
    assert job.files() == files_of(5)


def test_whatever_goes_wrong_with_one_deletion_the_others_go_on(
    job: Job, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(uri: str, now_ms: int) -> list[LeaseRecord]:
        if uri == job.uri(1):
            raise RuntimeError("a bug of a file system")
        return live_leases(uri, now_ms)

    job.complete(1)
    with monkeypatch.context() as patched:
        patched.setattr(cleaner, "live_leases", fail)
        job.complete(2)
        job.complete(3)
        assert job.files() == files_of(1) + files_of(3)
        assert "a bug of a file system" in caplog.text
    job.complete(4)
    assert job.files() == files_of(4)


def test_nobody_begins_to_read_what_is_gone(job: Job) -> None:
    for number in (1, 2, 3):
        job.complete(number)
    with pytest.raises(SnapshotSubsumedError, match="the oldest one left is 3") as told:
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
        patched.setattr(cleaner, "remove_file", remove_with_a_reader_before)
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
    with pytest.raises(SnapshotSubsumedError, match="newer checkpoints have replaced it"):
        lease.renewed(is_certain=False)
    assert live_leases(job.uri(1), job.clock.now_ms()) == []


def test_a_reader_that_is_too_late_makes_no_folder_where_there_is_none(job: Job) -> None:
    job.complete(1)
    lease = job.lease(1)
    job.clock.advance_ms(LEASE_DURATION_MS)
    job.complete(2)
    with pytest.raises(SnapshotSubsumedError):
        lease.renewed()
    assert not is_there(job.uri(1))


def test_while_the_storage_refuses_a_renewal_is_tried_a_few_times_and_not_with_every_batch(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried_ms: list[int] = []

    def refuse(lease: Lease, now_ms: int) -> None:
        tried_ms.append(now_ms)
        raise CheckpointStorageError("write", lease.snapshot_uri, "no answer")

    job.complete(1)
    lease = job.lease(1)
    with monkeypatch.context() as patched:
        patched.setattr(Lease, "write", refuse)
        for _ in range(200):  # batches, in two thirds of the lease
            job.clock.advance_ms(LEASE_DURATION_MS // 300)
            lease = lease.renewed(is_certain=False)
    assert 3 <= len(tried_ms) <= 5
    job.clock.advance_ms(LEASE_DURATION_MS // 10)
    lease.renewed(is_certain=False)
    (record,) = live_leases(job.uri(1), job.clock.now_ms())
    assert record.expires_ms == job.clock.now_ms() + LEASE_DURATION_MS


def test_what_killed_readers_left_goes_with_the_next_one(job: Job) -> None:
    uri = job.complete(1)
    killed = job.lease(1)
    job.clock.advance_ms(LEASE_DURATION_MS)
    job.lease(1)
    (left,) = files_below(child_uri(uri, LEASES_FOLDER))
    assert killed.token not in left.relative_path


def test_who_may_not_write_reads_without_a_lease(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A file lies where the leases' folder should be: not even root makes one there."""
    job = Job(str(tmp_path))
    uri = job.complete(1)
    write_new(child_uri(uri, LEASES_FOLDER), [b"in the way"])
    assert take_lease(uri, "a test", clock=job.clock) is None
    assert "is read without a lease" in caplog.text


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
    assert "newer checkpoints have replaced it" in str(explained(missing, uri))


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


def test_leases_hold_where_uris_have_options(folder_with_options: str) -> None:
    job = Job(folder_with_options)
    uri = job.complete(1)
    lease = job.lease(1)
    (file,) = files_below(child_uri(uri, LEASES_FOLDER))
    assert file.relative_path == lease.token
    assert orphans_in(files_below(job.folder), job.completed.all) == []
    job.complete(2)
    assert job.files() == files_of(1) + files_of(2)
    lease.give_back()
    job.complete(3)
    assert job.files() == files_of(3)


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
    dispose_savepoint(uri, settings, clock)
    assert not is_there(uri)


@pytest.mark.parametrize("failing_look", [1, 2])
def test_a_savepoint_is_whole_as_long_as_its_disposal_is_refused(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing_look: int
) -> None:
    settings, clock = Settings({KEY_FILE.key: str(tmp_path / "key")}), ManualClock(1_000_000)
    uri = child_uri(folder, "savepoint-1")
    publish_metadata(metadata_of(7, kind=SnapshotKind.SAVEPOINT), uri, metadata_key(settings))
    looks: list[str] = []

    def fail_once(looked_at: str, now_ms: int) -> list[LeaseRecord]:
        looks.append(looked_at)
        if len(looks) == failing_look:
            raise CheckpointStorageError("list", looked_at, "no answer")
        return live_leases(looked_at, now_ms)

    monkeypatch.setattr(cleaner, "live_leases", fail_once)
    try:
        dispose_savepoint(uri, settings, clock)
    except CheckpointStorageError:
        assert is_there(child_uri(uri, METADATA_NAME))
    else:
        assert not is_there(uri)
    assert looks


def test_who_begins_to_read_a_savepoint_while_it_is_disposed_of_is_told_so(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, clock = Settings({KEY_FILE.key: str(tmp_path / "key")}), ManualClock(1_000_000)
    uri = child_uri(folder, "savepoint-1")
    publish_metadata(metadata_of(7, kind=SnapshotKind.SAVEPOINT), uri, metadata_key(settings))

    def remove_with_a_reader_before(removed: str) -> None:
        if removed.endswith(METADATA_NAME):
            assert take_lease(uri, "a late reader", clock=clock) is not None
        remove_file(removed)

    monkeypatch.setattr(cleaner, "remove_file", remove_with_a_reader_before)
    dispose_savepoint(uri, settings, clock)
    missing = CheckpointStorageError("read", child_uri(uri, "state"), "no such file")
    assert "or it was deleted" in str(explained(missing, uri))
    assert not is_there(uri)
