import queue
import threading
from collections.abc import Callable
from itertools import pairwise

import pytest

from headrace.checkpoint.errors import CheckpointStorageError
from headrace.checkpoint.metadata import CompletedCheckpoint
from headrace.checkpoint.retention.cleaner import CheckpointCleaner, orphans_in, perform_deletion
from headrace.checkpoint.retention.completed_store import Deletion
from headrace.checkpoint.retention.leases import LeaseRecord
from headrace.checkpoint.storage.file_systems import child_uri, files_below, is_there, write_new
from headrace.core.errors import HostError
from headrace.core.threads import start_thread
from tests.unit.checkpoint.snapshots import metadata_of, stored


class LaterThreads:
    """Threads that run when they are told to."""

    def __init__(self) -> None:
        self.bodies: list[Callable[[], None]] = []

    def start(self, name: str, body: Callable[[], None]) -> None:
        self.bodies.append(body)

    def run_all(self) -> None:
        while self.bodies:
            self.bodies.pop(0)()


def test_what_waits_is_counted_until_it_is_gone(folder: str) -> None:
    threads, counts = LaterThreads(), []
    cleaner = CheckpointCleaner(2, counts.append, threads.start)
    for number in range(3):
        write_new(child_uri(folder, f"chk-{number}", "_metadata"), [b"x"])
        cleaner.delete(Deletion(number, child_uri(folder, f"chk-{number}")))
    assert (len(threads.bodies), cleaner.waiting_count) == (2, 3)
    assert not cleaner.wait_until_done(0)
    threads.run_all()
    assert cleaner.wait_until_done(0)
    assert files_below(folder) == []
    assert counts == [1, 2, 3, 2, 1, 0]


def test_the_last_count_that_is_told_is_the_last_one(folder: str) -> None:
    counts: list[int] = []
    cleaner = CheckpointCleaner(4, counts.append)
    for number in range(40):
        cleaner.delete(Deletion(number, child_uri(folder, f"chk-{number}")))
    assert cleaner.wait_until_done(30)
    assert counts[-1] == 0
    assert all(abs(after - before) == 1 for before, after in pairwise(counts))


def test_who_asks_what_is_held_does_not_wait_for_the_storage(
    folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, answers = threading.Event(), threading.Event()

    def hang(uri: str, now_ms: int) -> list[LeaseRecord]:
        asked.set()
        assert answers.wait(30)
        return []

    monkeypatch.setattr("headrace.checkpoint.retention.cleaner.live_leases", hang)
    cleaner, held = CheckpointCleaner(1), queue.SimpleQueue[tuple[str, ...]]()
    cleaner.delete(Deletion(1, child_uri(folder, "chk-1")))
    try:
        assert asked.wait(30)
        start_thread("asks", lambda: held.put(cleaner.held_folders))
        assert held.get(timeout=10) == ()
    finally:
        answers.set()
    assert cleaner.wait_until_done(30)


def test_after_an_unexpected_error_the_count_goes_down_and_deleting_goes_on(
    folder: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(uri: str) -> None:
        raise RuntimeError("a bug of a file system")

    for number in (1, 2):
        write_new(child_uri(folder, f"chk-{number}", "a"), [b"x"])
    cleaner = CheckpointCleaner(1, start=lambda _, body: body())
    with monkeypatch.context() as patched:
        patched.setattr("headrace.checkpoint.retention.cleaner.remove_folder", fail)
        cleaner.delete(Deletion(1, child_uri(folder, "chk-1")))
    assert "a file was not deleted: a bug of a file system" in caplog.text
    cleaner.delete(Deletion(2, child_uri(folder, "chk-2")))
    assert cleaner.waiting_count == 0
    assert [one.relative_path for one in files_below(folder)] == ["chk-1/a"]


def test_nothing_to_do_starts_no_thread() -> None:
    threads = LaterThreads()
    CheckpointCleaner(1, start=threads.start).delete(Deletion(1, ""))
    assert threads.bodies == []


def test_real_threads_delete_and_end(folder: str) -> None:
    write_new(child_uri(folder, "shared", "a"), [b"x"])
    cleaner = CheckpointCleaner(1)
    cleaner.delete(Deletion(1, "", (child_uri(folder, "shared", "a"),)))
    assert cleaner.wait_until_done(30)
    assert not is_there(child_uri(folder, "shared", "a"))


def test_the_metadata_goes_before_the_rest(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    removed: list[str] = []
    monkeypatch.setattr("headrace.checkpoint.retention.cleaner.remove_file", removed.append)
    monkeypatch.setattr("headrace.checkpoint.retention.cleaner.remove_folder", removed.append)
    perform_deletion(Deletion(1, "chk-1", ("shared/a",)))
    assert removed == ["chk-1/_metadata", "chk-1", "shared/a"]


def test_what_cannot_be_deleted_is_told_and_left(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    removed: list[str] = []

    def remove(uri: str) -> None:
        if uri == "stuck":
            raise CheckpointStorageError("delete", uri, "it is busy")
        removed.append(uri)

    monkeypatch.setattr("headrace.checkpoint.retention.cleaner.remove_file", remove)
    left = perform_deletion(Deletion(1, "", ("stuck", "next")))
    assert (removed, left) == (["next"], Deletion(1, "", ("stuck",)))
    assert (
        "a file was not deleted: checkpoint storage: cannot delete stuck: it is busy" in caplog.text
    )


@pytest.mark.parametrize("failing", ["remove_file", "remove_folder"])
def test_what_could_not_be_deleted_is_named_and_deleted_when_it_is_tried_again(
    folder: str, failing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(uri: str) -> None:
        raise CheckpointStorageError("delete", uri, "it is busy")

    checkpoint = child_uri(folder, "chk-1")
    for name in ("_metadata", "a"):
        write_new(child_uri(checkpoint, name), [b"x"])
    cleaner = CheckpointCleaner(1, start=lambda _, body: body())
    with monkeypatch.context() as patched:
        patched.setattr(f"headrace.checkpoint.retention.cleaner.{failing}", fail)
        cleaner.delete(Deletion(1, checkpoint))
        cleaner.try_failed_again()
    assert cleaner.failed_uris == (checkpoint,)
    assert cleaner.held_folders == (), "nobody reads it"
    cleaner.try_failed_again()
    assert (cleaner.failed_uris, files_below(folder)) == ((), [])


def test_who_does_not_lead_any_more_deletes_nothing_from_then_on(folder: str) -> None:
    is_leader = [True, True, False]
    shared = child_uri(folder, "shared", "a")

    def fence() -> None:
        if not (is_leader.pop(0) if is_leader else False):
            raise HostError("another process leads")

    for number in (1, 2):
        write_new(child_uri(folder, f"chk-{number}", "a"), [b"x"])
    write_new(shared, [b"x"])
    cleaner = CheckpointCleaner(1, start=lambda _, body: body(), fence=fence)
    cleaner.delete(Deletion(1, child_uri(folder, "chk-1"), (shared,)))
    cleaner.delete(Deletion(2, child_uri(folder, "chk-2")))
    assert [one.relative_path for one in files_below(folder)] == ["chk-2/a", "shared/a"]
    assert (cleaner.waiting_count, cleaner.failed_uris) == (0, ())


def test_orphans_are_what_no_complete_checkpoint_refers_to(folder: str) -> None:
    names = (
        "chk-1/_metadata", "chk-1/a", "chk-1/late", "chk-2/b", "chk-3/_metadata", "shared/s1", "shared/s2",
        "taskowned/t", "notes.txt",
    )  # fmt: skip
    for name in names:
        write_new(child_uri(folder, *name.split("/")), [b"x"])
    used = [stored(child_uri(folder, "chk-1", "a")), stored(child_uri(folder, "shared", "s2"))]
    completed = [CompletedCheckpoint(metadata_of(1, *used), child_uri(folder, "chk-1"))]
    found = [entry.relative_path for entry in orphans_in(files_below(folder), completed)]
    assert found == ["chk-1/late", "chk-2/b", "shared/s1"]
