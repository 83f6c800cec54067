"""Job graphs, blobs and results as files: what is there after each step, and what nobody trusts."""

import errno
import os
import random
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import msgspec
import pytest

from headrace.checkpoint.errors import CheckpointStorageError, RecordNotTrustedError
from headrace.checkpoint.storage.metadata_key import MetadataKey, seal
from headrace.cluster.high_availability import job_graph_store
from headrace.cluster.high_availability.job_graph_store import (
    JobGraphStore,
    StoredJobGraph,
    UnreadableJobGraph,
)
from headrace.cluster.high_availability.job_result_store import JobResultEntry, JobResultStore
from headrace.cluster.high_availability.leader_election_service import LeadershipLostError
from headrace.core.ids import BlobKey, JobId
from headrace.core.lifecycle import JobStatus
from headrace.gateways.dispatcher import JobResult
from headrace.graph.job_graph import JobGraph

KEY = MetadataKey(b"k" * 32)


def job_id(number: int) -> JobId:
    return JobId(bytes([number]) * 16)


def stored(number: int, submitted_ms: int = 0, epoch: int = 1) -> StoredJobGraph:
    graph = JobGraph(job_id(number), f"job {number}", (), (), {"a.b": "c\n"})
    return StoredJobGraph(graph, submitted_ms, epoch)


def graphs(folder: Path, key: MetadataKey = KEY, *, seed: int = 1) -> JobGraphStore:
    return JobGraphStore(str(folder), key, random.Random(seed))


def results(folder: Path, *, deletes_clean: bool = True, seed: int = 1) -> JobResultStore:
    return JobResultStore(str(folder), KEY, random.Random(seed), deletes_clean=deletes_clean)


def folder_of(store: Path, number: int, epoch: int = 1) -> Path:
    return store / f"{job_id(number).hex()}-{epoch}"


def unlost() -> None:
    """Stand in for the look of a leader that nobody has followed."""


def entry(number: int, status: JobStatus = JobStatus.FINISHED) -> JobResultEntry:
    return JobResultEntry(JobResult(job_id(number), f"job {number}", status, 5, {}))


def test_jobs_are_recovered_in_the_order_of_their_submission(tmp_path: Path) -> None:
    assert graphs(tmp_path).recover(1, unlost) == []
    jobs = [stored(1, 30), stored(2, 10), stored(3, 20)]
    for job in jobs:
        graphs(tmp_path).put(job)
    assert graphs(tmp_path).recover(1, unlost) == [jobs[1], jobs[2], jobs[0]]


def test_a_job_that_is_submitted_again_replaces_what_was_left_of_it(tmp_path: Path) -> None:
    graphs(tmp_path).put(stored(1, 10))
    graphs(tmp_path).put(stored(1, 20))
    assert graphs(tmp_path).recover(1, unlost) == [stored(1, 20)]


def test_a_removed_job_leaves_nothing(tmp_path: Path) -> None:
    store = graphs(tmp_path)
    store.put_blob(job_id(1), 1, BlobKey.of(b"content"), [b"con", b"tent"])
    store.put(stored(1))
    store.remove(job_id(1), 1, 1)
    store.remove(job_id(2), 1, 1)
    assert list(tmp_path.iterdir()) == []


def test_blobs_without_a_graph_are_no_job_and_are_deleted(tmp_path: Path) -> None:
    store = graphs(tmp_path)
    store.put_blob(job_id(1), 1, BlobKey.of(b"content"), [b"content"])
    assert store.recover(2, unlost) == []
    assert [file.name for file in tmp_path.iterdir()] == ["recovered-2"]


def test_a_blob_that_was_written_in_part_is_written_again(tmp_path: Path) -> None:
    store, key = graphs(tmp_path), BlobKey.of(b"content")
    store.put_blob(job_id(1), 1, key, [b"content"])
    (blob,) = folder_of(tmp_path, 1).iterdir()
    blob.write_bytes(b"con")
    store.put_blob(job_id(1), 1, key, [b"content"])
    assert b"".join(store.blob(job_id(1), 1, key)) == b"content"


def unreadable(store: JobGraphStore, number: int) -> str:
    """Return why the only job of a store cannot be read."""
    (found,) = store.recover(1, unlost)
    assert isinstance(found, UnreadableJobGraph)
    assert (found.job_id, found.epoch) == (job_id(number), 1)
    return str(found.error)


def test_a_graph_that_was_changed_moved_or_sealed_by_others_is_not_trusted(tmp_path: Path) -> None:
    graphs(tmp_path).put(stored(1))
    folder = folder_of(tmp_path, 1)
    moved = folder.rename(folder_of(tmp_path, 2))
    assert "was not written for graph of job" in unreadable(graphs(tmp_path), 2)
    moved.rename(folder)
    graph = folder / "graph"
    graph.write_bytes(graph.read_bytes().replace(b"job 1", b"job 2"))
    assert "was not written for graph of job" in unreadable(graphs(tmp_path), 1)
    graphs(tmp_path / "other", MetadataKey(b"s" * 32)).put(stored(1))
    cause = unreadable(graphs(tmp_path / "other"), 1)
    assert "it was written with the key" in cause
    assert "start the program again from its newest checkpoint" in cause


def test_a_graph_of_another_version_is_left_to_the_leader_that_can_read_it(tmp_path: Path) -> None:
    graphs(tmp_path).put(stored(1))
    graphs(tmp_path).put(stored(2))
    subject = f"graph of job {job_id(1)} under leader 1"
    graph = folder_of(tmp_path, 1) / "graph"
    graph.write_bytes(seal(msgspec.msgpack.encode({"graph": "later"}), subject, KEY))
    for epoch in (1, 2):
        with pytest.raises(RecordNotTrustedError, match="another version of Headrace wrote it"):
            graphs(tmp_path).recover(epoch, unlost)
    assert graph.exists(), "whoever can read it finds it"


class Pointers:
    """Pointers of a service, of any leader."""

    def __init__(self) -> None:
        self._pointers: Final[dict[str, bytes]] = {}

    def put(self, _: int, job: JobId, pointer: bytes) -> None:
        self._pointers[job.hex()] = pointer

    def read_all(self, _: int) -> dict[str, bytes]:
        return dict(self._pointers)

    def remove(self, _: int, job: JobId) -> None:
        self._pointers.pop(job.hex(), None)


def test_a_pointer_without_its_graph_is_named_and_once_deleted_holds_nobody_up(
    tmp_path: Path,
) -> None:
    pointers = Pointers()
    store = JobGraphStore(str(tmp_path), KEY, random.Random(1), pointers=pointers)
    for number in (1, 2):
        store.put(stored(number))
    (folder_of(tmp_path, 1) / "graph").unlink()
    with pytest.raises(RecordNotTrustedError, match=f"the name {job_id(1).hex()}"):
        store.recover(2, unlost)
    pointers.remove(2, job_id(1))
    assert store.recover(2, unlost) == [stored(2)]
    assert not folder_of(tmp_path, 1).exists()


def test_a_folder_that_names_no_job_stops_the_recovery(tmp_path: Path) -> None:
    (tmp_path / "stranger").mkdir()
    (tmp_path / "stranger" / "graph").write_bytes(b"?")
    with pytest.raises(RecordNotTrustedError, match="another version"):
        graphs(tmp_path).recover(1, unlost)


def test_a_job_that_is_stored_after_a_later_leader_has_read_the_jobs_is_none(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    graphs(tmp_path).put(stored(1))
    assert graphs(tmp_path).recover(2, unlost) == [stored(1)]
    # Its leader had looked in time whether it leads, and was frozen since.
    graphs(tmp_path).put(stored(2))
    graphs(tmp_path).put(stored(3, epoch=2))
    assert graphs(tmp_path).recover(3, unlost) == [stored(1), stored(3, epoch=2)]
    assert "'job 2'" in caplog.text and "deleting job" in caplog.text
    assert not folder_of(tmp_path, 2).exists()
    assert graphs(tmp_path).recover(4, unlost) == [stored(1), stored(3, epoch=2)]
    assert [file.name for file in tmp_path.glob("recovered-*")] == ["recovered-4"]


def test_a_job_that_is_stored_late_takes_nothing_from_the_one_that_its_client_brought_again(
    tmp_path: Path,
) -> None:
    key = BlobKey.of(b"content")
    assert graphs(tmp_path).recover(2, unlost) == []
    for epoch in (2, 1):
        graphs(tmp_path).put_blob(job_id(1), epoch, key, [b"content"])
        graphs(tmp_path).put(stored(1, epoch=epoch))
    assert graphs(tmp_path).recover(3, unlost) == [stored(1, epoch=2)]
    assert b"".join(graphs(tmp_path).blob(job_id(1), 2, key)) == b"content"
    assert not folder_of(tmp_path, 1, 1).exists()


def test_a_job_that_is_stored_before_the_next_leader_has_its_list_is_one(tmp_path: Path) -> None:
    assert graphs(tmp_path).recover(1, unlost) == []
    # The leader of epoch 2 dies before it has read anything.
    graphs(tmp_path).put(stored(1))
    assert graphs(tmp_path).recover(3, unlost) == [stored(1)]
    assert graphs(tmp_path).recover(3, unlost) == [stored(1)]


def test_a_leader_that_has_been_followed_deletes_nothing_for_its_list(tmp_path: Path) -> None:
    def lose() -> None:
        # The next leader has read the lists before this one's was there, and goes on with a late job.
        graphs(tmp_path, seed=2).put(stored(1))
        raise LeadershipLostError("test", "another process leads it")

    with pytest.raises(LeadershipLostError):
        graphs(tmp_path).recover(2, lose)
    assert folder_of(tmp_path, 1).exists()


def test_a_list_that_an_attempt_of_the_same_leader_has_left_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put = job_graph_store.put_if_absent

    def put_and_fail(uri: str, content: bytes, token: str) -> bool:
        monkeypatch.undo()
        assert put(uri, content, token)
        graphs(tmp_path, seed=2).put(stored(1))
        raise CheckpointStorageError("publish", uri, "no answer")

    monkeypatch.setattr(job_graph_store, "put_if_absent", put_and_fail)
    with pytest.raises(CheckpointStorageError):
        graphs(tmp_path).recover(2, unlost)
    assert graphs(tmp_path).recover(2, unlost) == []
    assert not folder_of(tmp_path, 1).exists()


def test_a_leader_that_is_earlier_than_the_newest_list_does_not_go_on(tmp_path: Path) -> None:
    graphs(tmp_path).recover(7, unlost)
    with pytest.raises(RecordNotTrustedError, match="newer than this one"):
        graphs(tmp_path).recover(1, unlost)


def test_a_list_that_somebody_else_wrote_is_not_trusted(tmp_path: Path) -> None:
    graphs(tmp_path).put(stored(1))
    (tmp_path / "recovered-1").write_bytes(b"[]")
    with pytest.raises(RecordNotTrustedError):
        graphs(tmp_path).recover(2, unlost)
    assert folder_of(tmp_path, 1).exists()


def test_an_ended_job_is_dirty_until_it_is_clean(tmp_path: Path) -> None:
    store = results(tmp_path)
    assert store.recover().dirty == {}
    store.create_dirty(entry(1), 1)
    assert store.recover().dirty == {job_id(1): entry(1)}
    store.mark_clean(entry(1))
    assert (store.recover().dirty, store.recover().clean) == ({}, {})
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_leader_has_begun_to_write_of_a_job_goes_with_its_entries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class KilledError(BaseException):
        """Nothing catches it."""

    def die(*_: object) -> None:
        raise KilledError

    with monkeypatch.context() as patched:
        patched.setattr(os, "link", die)
        patched.setattr(os, "unlink", die)
        for number in (1, 2):
            with pytest.raises(KilledError):
                results(tmp_path, seed=number).shut_out(job_id(number), {1})
    left = [file.name for file in tmp_path.iterdir()]
    assert len(left) == 2 and all(name.startswith(".") for name in left)
    store = results(tmp_path)
    store.create_dirty(entry(1), 2)
    store.mark_clean(entry(1))
    assert [file.name[1:33] for file in tmp_path.iterdir()] == [job_id(2).hex()], "it still runs"


def test_clean_entries_stay_where_they_are_wanted(tmp_path: Path) -> None:
    store = results(tmp_path, deletes_clean=False)
    store.create_dirty(entry(1), 1)
    store.mark_clean(entry(1))
    assert store.recover().clean == {job_id(1): entry(1)}
    assert store.recover().dirty == {}


def test_a_clean_entry_is_found_where_it_stays(tmp_path: Path) -> None:
    for deletes_clean, found in ((True, None), (False, entry(1))):
        store = results(tmp_path, deletes_clean=deletes_clean)
        store.create_dirty(entry(1), 1)
        assert store.find_clean(job_id(1)) is None
        store.mark_clean(entry(1))
        assert store.find_clean(job_id(1)) == found


def test_a_job_that_is_clean_and_dirty_was_cleaned_up_to_the_last_step(tmp_path: Path) -> None:
    store = results(tmp_path, deletes_clean=False)
    store.create_dirty(entry(1), 1)
    store.mark_clean(entry(1))
    store.create_dirty(entry(1), 1)
    store.create_dirty(entry(2), 1)
    assert store.recover().dirty == {job_id(2): entry(2)}
    names = {f"{job_id(1).hex()}.json", f"{job_id(2).hex()}_DIRTY-1.json"}
    assert {file.name for file in tmp_path.iterdir()} == names


def test_the_first_result_of_a_job_counts(tmp_path: Path) -> None:
    store = results(tmp_path)
    store.create_dirty(entry(1), 1)
    store.create_dirty(entry(1, JobStatus.FAILED), 1)
    assert store.recover().dirty[job_id(1)].result.status is JobStatus.FINISHED


def test_a_leader_that_writes_late_cannot_end_a_job_that_goes_on(tmp_path: Path) -> None:
    late, later = results(tmp_path), results(tmp_path)
    assert later.shut_out(job_id(1), {1, 2}) is None
    assert not late.create_dirty(entry(1, JobStatus.FAILED), 1)
    found = later.recover()
    assert (found.dirty, found.shut_out) == ({}, {job_id(1): {1, 2}})
    assert later.create_dirty(entry(1), 3)
    assert later.recover().dirty == {job_id(1): entry(1)}
    later.mark_clean(entry(1))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("is_published", [False, True])
def test_a_leader_that_is_frozen_within_a_write_without_hard_links_has_ended_the_job_or_never_will(
    is_published: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, replace, found = results(tmp_path), os.replace, list[JobResultEntry | None]()

    def refuse(*_: object) -> None:
        raise OSError(errno.EPERM, "no hard links here")

    def freeze(source: str, target: str) -> None:
        monkeypatch.setattr(os, "replace", replace)
        if is_published:
            replace(source, target)
        found.append(results(tmp_path).shut_out(job_id(1), [1]))
        if not is_published:
            replace(source, target)

    monkeypatch.setattr(os, "link", refuse)
    monkeypatch.setattr(os, "replace", freeze)
    assert store.create_dirty(entry(1), 1) is is_published
    assert found == [entry(1) if is_published else None]
    assert store.recover().dirty == ({job_id(1): entry(1)} if is_published else {})


def test_a_job_that_was_ended_meanwhile_is_not_gone_on_with(tmp_path: Path) -> None:
    late, later = results(tmp_path), results(tmp_path)
    assert later.recover().dirty == {}
    assert late.create_dirty(entry(1), 1)
    assert later.shut_out(job_id(1), {2, 1}) == entry(1)
    assert [file.name for file in tmp_path.iterdir()] == [f"{job_id(1).hex()}_DIRTY-1.json"]


def test_of_leaders_that_end_and_go_on_with_jobs_at_once_one_has_its_way(tmp_path: Path) -> None:
    start, late, later = threading.Barrier(2), results(tmp_path), results(tmp_path, seed=2)

    def end() -> list[bool]:
        start.wait()
        return [late.create_dirty(entry(number), 1) for number in range(50)]

    def go_on() -> list[bool]:
        start.wait()
        return [later.shut_out(job_id(number), {1}) is None for number in range(50)]

    with ThreadPoolExecutor(2) as pool:
        ended, goes_on = pool.submit(end), pool.submit(go_on)
    assert [one ^ other for one, other in zip(ended.result(), goes_on.result(), strict=True)] == [
        True
    ] * 50


@pytest.mark.parametrize("name", ["stranger.json", f"{job_id(1).hex()}_DIRTY.json"])
def test_a_result_whose_name_says_no_job_or_no_leader_stops_the_recovery(
    tmp_path: Path, name: str
) -> None:
    (tmp_path / name).write_bytes(b"null\n")
    with pytest.raises(RecordNotTrustedError, match="another version"):
        results(tmp_path).recover()


def test_a_result_that_somebody_else_wrote_is_not_trusted(tmp_path: Path) -> None:
    (tmp_path / f"{job_id(1).hex()}_DIRTY-1.json").write_bytes(
        msgspec.json.encode(entry(1)) + b"\n"
    )
    with pytest.raises(RecordNotTrustedError):
        results(tmp_path).recover()
