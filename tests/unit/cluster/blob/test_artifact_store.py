"""ArtifactStore: what several processes of a host use is made once, and deleted by the last of them."""

import threading
from pathlib import Path

import pytest

from headrace.cluster.blob.artifact_store import ArtifactStore
from headrace.core.clock import ManualClock, SystemClock
from headrace.core.threads import start_thread
from headrace.gateways.errors import BlobStorageError


@pytest.fixture
def store(tmp_path: Path) -> ArtifactStore:
    return ArtifactStore(tmp_path, SystemClock())


def fill(folder: Path) -> None:
    (folder / "content").write_text("made")


def test_the_first_makes_an_entry_and_others_use_it(store: ArtifactStore) -> None:
    first = store.lease("a")
    assert not first.is_made
    first.make(fill)
    second = store.lease("a")
    assert second.is_made
    assert (second.folder / "content").read_text() == "made"


def test_others_wait_while_one_makes_it(store: ArtifactStore) -> None:
    first = store.lease("a")
    is_waiting, found = threading.Event(), list[bool]()

    def wait() -> None:
        is_waiting.set()
        lease = store.lease("a")
        found.append(lease.is_made)
        lease.release()

    waiting = start_thread("waiting", wait)
    assert is_waiting.wait(60)
    first.make(fill)
    waiting.join()
    assert found == [True]


def test_the_last_user_deletes_it_and_the_next_makes_it_anew(store: ArtifactStore) -> None:
    first = store.lease("a")
    first.make(fill)
    second = store.lease("a")
    first.release()
    first.release()
    assert second.is_made
    second.release()
    assert not second.folder.parent.exists()
    assert not store.lease("a").is_made


def test_nothing_is_left_of_what_could_not_be_made(store: ArtifactStore) -> None:
    def fail(folder: Path) -> None:
        (folder / "half").touch()
        raise OSError("no room")

    lease = store.lease("a")
    with pytest.raises(OSError, match="no room"):
        lease.make(fail)
    lease.release()
    assert not lease.folder.parent.exists()


def test_what_a_killed_process_left_is_deleted_and_what_is_used_stays(
    store: ArtifactStore,
) -> None:
    used = store.lease("used")
    used.make(fill)
    root = used.folder.parent
    (root / "left").mkdir()
    (root / "left.lock").touch()
    (root / ".making-half-x1").mkdir()
    (root / "half.lock").touch()
    store.delete_unused()
    assert sorted(path.name for path in root.iterdir()) == ["used", "used.lock"]


def test_what_is_kept_for_others_stays_for_a_while_or_until_it_is_named(tmp_path: Path) -> None:
    clock = ManualClock(10_000)
    store = ArtifactStore(tmp_path, clock)
    lease, other = store.lease("a"), store.lease("b")
    lease.make(fill)
    other.make(fill)
    store.lease("a").leave(kept_ms=500)
    lease.release()
    assert lease.folder.exists(), "the last user does not delete it"
    clock.advance_ms(500)
    store.delete_unused()
    assert not lease.folder.exists(), "its time is over"
    lease = store.lease("a")
    lease.make(fill)
    lease.leave(kept_ms=500)
    store.delete_unused()
    assert lease.folder.exists()
    assert not store.delete(["a", "b"]), "the other one is in use"
    assert not lease.folder.exists()
    assert other.folder.exists()
    other.release()
    assert store.delete(["a", "b"])


def test_who_takes_up_what_was_left_deletes_it_at_its_end(store: ArtifactStore) -> None:
    lease = store.lease("a")
    lease.make(fill)
    lease.leave(kept_ms=60_000)
    store.lease("a").release()
    assert not lease.folder.exists()


def test_a_folder_that_others_may_write_to_is_not_used(store: ArtifactStore) -> None:
    root = store.folder_of("a").parent
    root.mkdir(parents=True)
    root.chmod(0o777)
    with pytest.raises(BlobStorageError, match="only this user may access"):
        store.lease("a")
