"""Retention and shared files, among them a model that counts references the plain way."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.checkpoint.errors import CheckpointCorruptedError
from headrace.checkpoint.handles import StateFile
from headrace.checkpoint.metadata import CompletedCheckpoint
from headrace.checkpoint.options import ExternalizedCheckpointRetention as Retention
from headrace.checkpoint.retention.completed_store import (
    CompletedCheckpointStore,
    Deletion,
    is_kept,
)
from headrace.core.barriers import SnapshotKind
from headrace.core.lifecycle import JobStatus
from tests.unit.checkpoint.snapshots import metadata_of, stored


def checkpoint(
    number: int, *shared: str, kind: SnapshotKind = SnapshotKind.CHECKPOINT
) -> CompletedCheckpoint:
    files = [stored(name, name.encode(), is_shared=True) for name in shared]
    return CompletedCheckpoint(metadata_of(number, *files, kind=kind), f"chk-{number}")


def ids(store: CompletedCheckpointStore) -> list[int]:
    return [one.checkpoint_id for one in store.all]


def test_the_oldest_goes_when_there_are_too_many() -> None:
    store = CompletedCheckpointStore(2)
    assert store.add(checkpoint(1)) == []
    assert store.add(checkpoint(2)) == []
    assert store.add(checkpoint(5)) == [Deletion(1, "chk-1")]
    assert ids(store) == [2, 5]


def test_the_newest_never_goes() -> None:
    store = CompletedCheckpointStore(1)
    store.add(checkpoint(1))
    store.add(checkpoint(2))
    assert store.latest == checkpoint(2)


def test_what_increments_build_on_stays_beside_a_newer_savepoint() -> None:
    store = CompletedCheckpointStore(1)
    store.add(checkpoint(1))
    assert store.add(checkpoint(2, kind=SnapshotKind.SAVEPOINT)) == []
    assert ids(store) == [1, 2]


def test_a_job_that_stops_with_a_savepoint_needs_no_increments() -> None:
    store = CompletedCheckpointStore(1)
    store.add(checkpoint(1))
    assert store.add(checkpoint(2, kind=SnapshotKind.SAVEPOINT_SUSPEND)) == [Deletion(1, "chk-1")]


def test_a_savepoint_that_the_job_goes_on_from_is_left_to_its_user() -> None:
    store = CompletedCheckpointStore(1)
    store.add(checkpoint(1))
    savepoint = checkpoint(2, kind=SnapshotKind.SAVEPOINT_SUSPEND)
    assert store.add_savepoint(savepoint) == [Deletion(1, "chk-1")]
    assert not store.has_own
    assert [one.folder_uri for one in store.add(checkpoint(3))] == [""]
    assert ids(store) == [3]


def test_a_shared_file_goes_with_its_last_user() -> None:
    store = CompletedCheckpointStore(1)
    store.add(checkpoint(1, "a", "b"))
    assert store.add(checkpoint(2, "b", "c")) == [Deletion(1, "chk-1", ("a",))]
    assert store.add(checkpoint(3)) == [Deletion(2, "chk-2", ("b", "c"))]


def test_files_of_a_checkpoint_that_came_to_nothing_go_with_the_next_but_one() -> None:
    store = CompletedCheckpointStore(1)
    store.add(checkpoint(1, "a"))
    store.shared.register(2, [stored("late", is_shared=True)])
    assert store.add(checkpoint(3)) == [Deletion(1, "chk-1", ("a", "late"))]


def test_a_later_increment_may_use_a_file_of_one_that_came_to_nothing() -> None:
    store = CompletedCheckpointStore(1)
    store.shared.register(1, [stored("late", b"late", is_shared=True)])
    assert store.add(checkpoint(2, "late")) == []
    assert store.add(checkpoint(3)) == [Deletion(2, "chk-2", ("late",))]


def test_two_contents_under_one_name_are_an_error() -> None:
    store = CompletedCheckpointStore(1)
    store.add(checkpoint(1, "a"))
    with pytest.raises(CheckpointCorruptedError, match="two different files"):
        store.shared.register(2, [stored("a", b"other", is_shared=True)])


def test_nothing_of_a_snapshot_that_is_not_claimed_is_deleted() -> None:
    store = CompletedCheckpointStore(1)
    store.restore(checkpoint(4, "theirs"), is_claimed=False)
    assert not store.has_own
    (deletion,) = store.add(checkpoint(5, "ours"))
    assert deletion.is_empty
    assert store.has_own
    assert store.add(checkpoint(6)) == [Deletion(5, "chk-5", ("ours",))]


def test_a_claimed_snapshot_goes_as_the_jobs_own_do() -> None:
    store = CompletedCheckpointStore(1)
    store.restore(checkpoint(4, "taken"), is_claimed=True)
    assert store.has_own
    assert store.add(checkpoint(5)) == [Deletion(4, "chk-4", ("taken",))]


def test_ids_that_do_not_rise_are_a_mistake() -> None:
    store = CompletedCheckpointStore(1)
    store.add(checkpoint(5))
    with pytest.raises(AssertionError):
        store.add(checkpoint(5))


@pytest.mark.parametrize(
    ("retention", "kept"),
    [
        (Retention.NO_EXTERNALIZED_CHECKPOINTS, {JobStatus.FAILED}),
        (Retention.DELETE_ON_CANCELLATION, {JobStatus.FAILED}),
        (Retention.RETAIN_ON_CANCELLATION, {JobStatus.FAILED, JobStatus.CANCELED}),
    ],
)
def test_retention_says_which_end_of_a_job_its_checkpoints_outlive(
    retention: Retention, kept: set[JobStatus]
) -> None:
    for status in (JobStatus.FINISHED, JobStatus.CANCELED, JobStatus.FAILED):
        assert is_kept(status, retention) == (status in kept)
    assert is_kept(JobStatus.SUSPENDED, retention)


def test_at_the_end_everything_of_its_own_goes() -> None:
    store = CompletedCheckpointStore(2)
    store.restore(checkpoint(1, "theirs"), is_claimed=False)
    store.add(checkpoint(2, "ours"))
    deletions = store.end(JobStatus.FINISHED, Retention.NO_EXTERNALIZED_CHECKPOINTS)
    assert [one for one in deletions if not one.is_empty] == [
        Deletion(2, "chk-2"),
        Deletion(0, "", ("ours",)),
    ]


def test_at_the_end_the_newest_may_have_to_stay() -> None:
    store = CompletedCheckpointStore(2)
    store.add(checkpoint(1, "a", "b"))
    store.add(checkpoint(2, "b"))
    deletions = store.end(
        JobStatus.FINISHED, Retention.NO_EXTERNALIZED_CHECKPOINTS, keeps_latest=True
    )
    assert deletions == [Deletion(1, "chk-1"), Deletion(0, "", ("a",))]
    assert ids(store) == [2]


def test_a_suspended_job_leaves_everything() -> None:
    store = CompletedCheckpointStore(1)
    store.add(checkpoint(1, "a"))
    store.shared.register(2, [stored("late", is_shared=True)])
    assert store.end(JobStatus.SUSPENDED, Retention.NO_EXTERNALIZED_CHECKPOINTS) == []


Step = tuple[frozenset[str], bool]


@given(
    steps=st.lists(st.tuples(st.frozensets(st.sampled_from("abcdef")), st.booleans()), max_size=12),
    retained_count=st.integers(1, 3),
    restored=st.none() | st.tuples(st.frozensets(st.sampled_from("abc")), st.booleans()),
)
def test_exactly_the_files_of_retained_checkpoints_are_there(
    steps: list[Step], retained_count: int, restored: Step | None
) -> None:
    """Each step is a checkpoint's shared files, and whether it completes. Increments use only what is there."""
    store = CompletedCheckpointStore(retained_count)
    there: set[str] = set()
    theirs: set[str] = set()
    if restored is not None:
        files, is_claimed = restored
        store.restore(checkpoint(1, *files), is_claimed=is_claimed)
        there |= files
        theirs = set() if is_claimed else set(files)
    for number, (files, completes) in enumerate(steps, start=2):
        names = [f"{name}{number}" for name in files]
        latest = store.latest
        kept = [] if latest is None else [file.uri for file in latest.metadata.files()]
        names += [name for name in kept if store.has_own and (ord(name[0]) + number) % 2]
        there |= set(names)
        shared: list[StateFile] = [stored(name, name.encode(), is_shared=True) for name in names]
        store.shared.register(number, shared)
        if completes:
            for deletion in store.add(checkpoint(number, *names)):
                there -= set(deletion.file_uris)
        for one in store.all:
            assert {file.uri for file in one.metadata.files()} <= there
    if steps and steps[-1][1]:
        used = {file.uri for one in store.all for file in one.metadata.files()}
        lowest = store.all[0].checkpoint_id
        late = {name for name in there if name[1:] and int(name[1:]) > lowest}
        assert used <= there <= used | late | theirs
    for deletion in store.end(JobStatus.FINISHED, Retention.NO_EXTERNALIZED_CHECKPOINTS):
        there -= set(deletion.file_uris)
    assert there == theirs
