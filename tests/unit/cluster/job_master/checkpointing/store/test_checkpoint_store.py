"""The store of a job over real folders: takes over, publishes, gives up, starts again."""

import random
from pathlib import Path

import pytest

from headrace.checkpoint.errors import (
    CheckpointCorruptedError,
    CheckpointFencedError,
    MetadataMissingError,
    SnapshotDrainedError,
)
from headrace.checkpoint.handles import StateFile
from headrace.checkpoint.metadata import CheckpointMetadata, CompletedCheckpoint
from headrace.checkpoint.options import (
    CHECKPOINT_DIRECTORY,
    NUM_RETAINED,
    RECOVERY_CLAIM_MODE,
    RECOVERY_PATH,
    RETENTION,
)
from headrace.checkpoint.retention.leases import LEASE_DURATION_MS, Lease, take_lease
from headrace.checkpoint.storage.file_systems import files_below
from headrace.checkpoint.storage.subtask_storage import SubtaskStorage
from headrace.cluster.job_master.checkpointing.store.checkpoint_store import CheckpointStore
from headrace.core.barriers import CheckpointOptions, SnapshotKind
from headrace.core.clock import ManualClock
from headrace.core.config import Settings
from headrace.core.ids import JobId
from headrace.core.lifecycle import JobStatus
from tests.unit.cluster.job_master.checkpointing.durable_jobs import (
    BIG,
    JOB,
    OTHER_JOB,
    Jobs,
    described,
    located,
    take,
)


def file_of(checkpoint: CompletedCheckpoint) -> StateFile:
    return next(iter(checkpoint.metadata.files()))


@pytest.fixture
def jobs(tmp_path: Path) -> Jobs:
    return Jobs(tmp_path)


def test_a_new_job_starts_from_nothing(jobs: Jobs) -> None:
    store = jobs.start()
    assert jobs.restored is None
    assert store.latest() is None
    assert (store.epoch, len(store.lineage_id), store.take_id()) == (1, 32, 1)
    other = jobs.start(OTHER_JOB)
    assert other.lineage_id != store.lineage_id


def test_a_driver_that_starts_again_goes_on_from_what_was_published(jobs: Jobs) -> None:
    first = jobs.start()
    taken = [take(first), take(first)]
    second = jobs.start()
    assert jobs.restored == taken[1]
    assert (second.lineage_id, second.epoch) == (first.lineage_id, 2)
    assert take(second).checkpoint_id == 3


def test_the_old_one_goes_once_the_new_one_is_there(jobs: Jobs) -> None:
    store = jobs.start()
    take(store)
    store.publish(*_next(store))
    store.close(JobStatus.SUSPENDED)
    assert jobs.files() == ["chk-2/_metadata"]


def _next(store: CheckpointStore) -> tuple[CheckpointMetadata, CheckpointOptions]:
    checkpoint_id, options = located(store)
    return described(store, checkpoint_id), options


def test_a_zombie_can_do_nothing(jobs: Jobs) -> None:
    zombie = jobs.start()
    metadata, options = _next(zombie)
    jobs.start()
    with pytest.raises(CheckpointFencedError):
        zombie.publish(metadata, options)
    with pytest.raises(CheckpointFencedError):
        zombie.take_id()


def test_a_zombie_that_ends_leaves_its_successor_what_it_needs(jobs: Jobs) -> None:
    zombie = jobs.start()
    take(zombie)
    successor = jobs.start()
    take(successor)
    before = jobs.files()
    zombie.close(JobStatus.FAILED)
    assert jobs.files() == before
    successor.close(JobStatus.FINISHED)
    assert jobs.files() == []


def test_a_job_that_ended_leaves_nothing_and_its_zombie_can_do_nothing(jobs: Jobs) -> None:
    zombie = jobs.start()
    metadata, options = _next(zombie)
    successor = jobs.start()
    take(successor)
    successor.close(JobStatus.FINISHED)
    assert files_below(jobs.settings[CHECKPOINT_DIRECTORY.key]) == []
    with pytest.raises(CheckpointFencedError, match="has ended the job"):
        zombie.publish(metadata, options)
    assert files_below(jobs.settings[CHECKPOINT_DIRECTORY.key]) == []


def test_who_goes_on_writes_nothing_into_the_folder_of_a_job_that_ended(jobs: Jobs) -> None:
    first = jobs.start(**{NUM_RETAINED.key: "9"})
    for _ in range(9):
        take(first, shares=True)
    saved = take(first, kind=SnapshotKind.SAVEPOINT_SUSPEND)
    first.close(JobStatus.FINISHED)
    jobs.start(OTHER_JOB, **{RECOVERY_PATH.key: saved.uri})
    assert not (jobs.folder / "checkpoints" / JOB.hex()).exists()


def test_the_record_of_a_lineage_stays_for_its_savepoints(jobs: Jobs) -> None:
    first = jobs.start()
    saved = take(first, kind=SnapshotKind.SAVEPOINT)
    for _ in range(3):
        take(first)
    first.close(JobStatus.FINISHED)
    second = jobs.start(OTHER_JOB, **{RECOVERY_PATH.key: saved.uri})
    assert second.take_id() == 5
    second.close(JobStatus.FINISHED)
    assert jobs.start(JobId(b"3" * 16), **{RECOVERY_PATH.key: saved.uri}).take_id() == 6


def test_ids_go_on_where_no_checkpoint_was_complete(jobs: Jobs) -> None:
    first = jobs.start()
    assert first.take_id() == 1
    second = jobs.start()
    assert jobs.restored is None
    assert (second.lineage_id, second.take_id()) == (first.lineage_id, 2)


def test_what_a_dead_driver_left_unpublished_is_swept(jobs: Jobs) -> None:
    store = jobs.start()
    take(store, shares=True)
    _, options = located(store)
    writer = SubtaskStorage(options, "state", Settings())
    writer.write("own", BIG)
    writer.write("late", BIG, is_shared=True)
    jobs.start()
    assert jobs.files() == ["chk-1/_metadata", "chk-2/_metadata", "shared/state-x"]
    assert jobs.restored is not None
    assert jobs.restored.checkpoint_id == 1


def test_a_savepoint_takes_nobodys_place_and_is_not_restarted_from(jobs: Jobs) -> None:
    store = jobs.start()
    first = take(store)
    saved = take(store, kind=SnapshotKind.SAVEPOINT)
    assert store.latest() == first
    assert Path(saved.uri).parent == jobs.folder / "savepoints"
    store.close(JobStatus.FINISHED)
    assert jobs.files() == []
    assert (Path(saved.uri) / "_metadata").exists()


def test_another_job_goes_on_from_a_savepoint_in_the_same_lineage(jobs: Jobs) -> None:
    first = jobs.start()
    saved = take(first, kind=SnapshotKind.SAVEPOINT_SUSPEND)
    first.close(JobStatus.FINISHED)
    second = jobs.start(OTHER_JOB, **{RECOVERY_PATH.key: saved.uri})
    assert jobs.restored == saved
    assert (second.lineage_id, second.epoch, second.take_id()) == (first.lineage_id, 2, 2)


def test_until_its_own_first_one_a_job_refers_to_nothing_that_is_not_its(jobs: Jobs) -> None:
    saved = take(jobs.start(), kind=SnapshotKind.SAVEPOINT)
    store = jobs.start(OTHER_JOB, **{RECOVERY_PATH.key: saved.uri})
    assert located(store)[1].kind is SnapshotKind.FULL_CHECKPOINT
    take(store)
    assert located(store)[1].kind is SnapshotKind.CHECKPOINT
    assert (Path(saved.uri) / "_metadata").exists()


def test_a_claimed_checkpoint_is_the_jobs_own(jobs: Jobs) -> None:
    first = jobs.start()
    checkpoint = take(first, shares=True)
    claimed = {RECOVERY_PATH.key: checkpoint.uri, RECOVERY_CLAIM_MODE.key: "claim"}
    second = jobs.start(OTHER_JOB, **claimed)
    assert located(second)[1].kind is SnapshotKind.CHECKPOINT
    take(second, file_of(checkpoint))
    second.close(JobStatus.SUSPENDED)
    assert jobs.files() == ["shared/state-x"]
    third = jobs.start(OTHER_JOB, **claimed)
    take(third)
    third.close(JobStatus.SUSPENDED)
    assert jobs.files(OTHER_JOB)[0].startswith("chk-")


def test_a_drained_savepoint_is_refused(jobs: Jobs) -> None:
    saved = take(jobs.start(), kind=SnapshotKind.SAVEPOINT_TERMINATE)
    with pytest.raises(SnapshotDrainedError, match="without --drain"):
        jobs.start(OTHER_JOB, **{RECOVERY_PATH.key: saved.uri})


def test_a_snapshot_that_is_not_there_is_refused(jobs: Jobs) -> None:
    with pytest.raises(MetadataMissingError):
        jobs.start(**{RECOVERY_PATH.key: str(jobs.folder / "nowhere")})


def test_a_missing_file_is_told_before_anything_starts(jobs: Jobs) -> None:
    checkpoint = take(jobs.start())
    Path(file_of(checkpoint).uri).unlink()
    with pytest.raises(
        CheckpointCorruptedError,
        match=r"the file is missing; checkpoint 1 needs it for subtask 0 of 'count'",
    ):
        jobs.start()


def test_a_file_that_was_cut_off_is_told_before_anything_starts(jobs: Jobs) -> None:
    checkpoint = take(jobs.start())
    Path(file_of(checkpoint).uri).write_bytes(BIG[:-1])
    with pytest.raises(CheckpointCorruptedError, match="29999 bytes instead of 30000"):
        jobs.start()


def test_a_job_that_cannot_start_from_its_checkpoints_deletes_none(jobs: Jobs) -> None:
    first = jobs.start(**{NUM_RETAINED.key: "2"})
    take(first)
    Path(file_of(take(first)).uri).unlink()
    second = CheckpointStore(
        Settings({**jobs.settings, NUM_RETAINED.key: "2"}), JOB, ManualClock(), random.Random(9)
    )
    with pytest.raises(CheckpointCorruptedError):
        second.recover()
    second.close(JobStatus.FAILED)
    assert jobs.files() == ["chk-1/_metadata", "chk-1/state-x", "chk-2/_metadata"]


NOTHING_STAYS = {RETENTION.key: "NO_EXTERNALIZED_CHECKPOINTS"}


def test_a_job_that_fails_before_it_has_a_checkpoint_keeps_the_snapshot_that_it_claimed(
    jobs: Jobs,
) -> None:
    first = jobs.start()
    saved = take(first, kind=SnapshotKind.SAVEPOINT_SUSPEND)
    first.close(JobStatus.FINISHED)
    claimed = {RECOVERY_PATH.key: saved.uri, RECOVERY_CLAIM_MODE.key: "claim", **NOTHING_STAYS}
    jobs.start(OTHER_JOB, **claimed).close(JobStatus.FAILED)
    third = jobs.start(OTHER_JOB, **claimed)
    assert jobs.restored == saved
    take(third)
    third.close(JobStatus.FINISHED)
    assert jobs.files(OTHER_JOB) == [] and not Path(saved.uri).exists()


def test_a_driver_that_fails_before_it_has_a_checkpoint_keeps_those_of_earlier_ones(
    jobs: Jobs,
) -> None:
    checkpoint = take(jobs.start(**NOTHING_STAYS))
    jobs.start(**NOTHING_STAYS).close(JobStatus.FAILED)
    jobs.start(**NOTHING_STAYS)
    assert jobs.restored == checkpoint


def test_a_job_that_fails_with_no_checkpoint_at_all_leaves_nothing(jobs: Jobs) -> None:
    jobs.start(**NOTHING_STAYS).close(JobStatus.FAILED)
    assert files_below(jobs.settings[CHECKPOINT_DIRECTORY.key]) == []


def test_a_checkpoint_that_came_to_nothing_leaves_nothing(jobs: Jobs) -> None:
    store = jobs.start()
    checkpoint_id, options = located(store)
    file = SubtaskStorage(options, "state", Settings()).write("x", BIG)
    store.discard(checkpoint_id, options, [file])
    assert jobs.files() == []


def test_a_late_part_takes_nothing_from_a_complete_checkpoint(jobs: Jobs) -> None:
    store = jobs.start()
    checkpoint_id, options = located(store)
    writer = SubtaskStorage(options, "state", Settings())
    kept, late = writer.write("kept", BIG), writer.write("late", BIG)
    store.publish(described(store, checkpoint_id, kept), options)
    store.discard(checkpoint_id, CheckpointOptions(), [kept, late])
    store.discard(checkpoint_id, options, [])
    assert jobs.files() == ["chk-1/_metadata", "chk-1/state-kept"]


def test_several_are_kept_where_that_is_asked_for(jobs: Jobs) -> None:
    store = jobs.start(**{NUM_RETAINED.key: "2"})
    for _ in range(4):
        take(store)
    names = [name for name in jobs.files() if name.endswith("_metadata")]
    assert names == ["chk-3/_metadata", "chk-4/_metadata"]


@pytest.mark.parametrize(
    ("retention", "status", "stays"),
    [
        ("NO_EXTERNALIZED_CHECKPOINTS", JobStatus.FAILED, True),
        ("NO_EXTERNALIZED_CHECKPOINTS", JobStatus.CANCELED, False),
        ("DELETE_ON_CANCELLATION", JobStatus.FAILED, True),
        ("DELETE_ON_CANCELLATION", JobStatus.CANCELED, False),
        ("RETAIN_ON_CANCELLATION", JobStatus.CANCELED, True),
        ("RETAIN_ON_CANCELLATION", JobStatus.FINISHED, False),
        ("NO_EXTERNALIZED_CHECKPOINTS", JobStatus.SUSPENDED, True),
    ],
)
def test_checkpoints_outlive_the_job_where_retention_says_so(
    jobs: Jobs, retention: str, status: JobStatus, stays: bool
) -> None:
    store = jobs.start(**{RETENTION.key: retention})
    take(store, shares=True)
    left = store.close(status)
    assert jobs.files() == (["chk-1/_metadata", "shared/state-x"] if stays else [])
    assert (left.kept_uri.endswith("/chk-1"), left.has_deleted) == (stays, not stays)


def test_output_that_is_not_committed_keeps_the_newest(jobs: Jobs) -> None:
    store = jobs.start(**{NUM_RETAINED.key: "2"})
    take(store)
    take(store)
    store.close(JobStatus.CANCELED, keeps_latest=True)
    assert jobs.files() == ["chk-2/_metadata", "chk-2/state-x"]


def test_in_memory_nothing_outlives_the_driver(tmp_path: Path) -> None:
    store = CheckpointStore(Settings(), JOB, ManualClock(), random.Random(1))
    assert store.recover() is None
    checkpoint_id, options = located(store)
    completed = store.publish(described(store, checkpoint_id), options)
    assert (completed.uri, store.latest()) == ("", completed)
    store.discard(checkpoint_id, options, [])
    store.close(JobStatus.FINISHED)
    assert list(tmp_path.iterdir()) == []


def test_shared_files_are_exactly_those_of_retained_checkpoints(jobs: Jobs) -> None:
    store = jobs.start()
    first = take(store, shares=True)
    second = take(store, file_of(first), shares=True)
    third = take(store, file_of(second), shares=True)
    store.close(JobStatus.SUSPENDED)
    referred = {file.uri.rpartition("/")[2] for file in third.metadata.files() if file.is_shared}
    found = {file.name for file in (jobs.folder / "checkpoints").rglob("shared/*")}
    assert found == referred
    assert len(found) == 2


def leased(jobs: Jobs, checkpoint: CompletedCheckpoint) -> Lease:
    lease = take_lease(checkpoint.uri, "a test", clock=jobs.clock)
    assert lease is not None
    return lease


def test_a_driver_that_starts_again_leaves_what_is_read(jobs: Jobs) -> None:
    store = jobs.start()
    lease = leased(jobs, take(store, shares=True))
    take(store)
    both = ["chk-1/_metadata", "chk-2/_metadata", "chk-2/state-x", "shared/state-x"]
    assert jobs.files() == both
    again = jobs.start()
    assert jobs.files() == both
    assert again.cleaning_count == 0
    lease.give_back()
    take(again)
    assert jobs.files() == ["chk-3/_metadata", "chk-3/state-x"]


def test_what_a_killed_reader_held_over_a_restart_goes_when_its_lease_has_ended(jobs: Jobs) -> None:
    store = jobs.start()
    leased(jobs, take(store))
    take(store)
    jobs.clock.advance_ms(LEASE_DURATION_MS)
    jobs.start()
    assert jobs.files() == ["chk-2/_metadata", "chk-2/state-x"]


def test_a_claimed_snapshot_is_not_deleted_while_it_is_read(jobs: Jobs) -> None:
    theirs = take(jobs.start(OTHER_JOB, **{RETENTION.key: "RETAIN_ON_CANCELLATION"}))
    lease = leased(jobs, theirs)
    claims = {RECOVERY_PATH.key: theirs.uri, RECOVERY_CLAIM_MODE.key: "CLAIM"}
    store = jobs.start(**claims)
    take(store)
    assert jobs.files(OTHER_JOB) == ["chk-1/_metadata", "chk-1/state-x"]
    lease.give_back()
    take(store)
    assert jobs.files(OTHER_JOB) == []


def test_of_a_job_that_has_ended_nothing_is_left_to_go_on_from_though_somebody_reads_it(
    jobs: Jobs, caplog: pytest.LogCaptureFixture
) -> None:
    store = jobs.start()
    checkpoint = take(store)
    leased(jobs, checkpoint)
    store.close(JobStatus.FINISHED)
    assert jobs.files() == ["chk-1/state-x"]
    assert f"not deleted because it is being read: {checkpoint.uri}" in caplog.text
    jobs.start()
    assert jobs.restored is None


def test_what_is_read_when_a_job_ends_that_keeps_its_checkpoints_is_told(
    jobs: Jobs, caplog: pytest.LogCaptureFixture
) -> None:
    store = jobs.start(**{RETENTION.key: "RETAIN_ON_CANCELLATION"})
    old = take(store)
    leased(jobs, old)
    take(store)
    store.close(JobStatus.SUSPENDED)
    assert "not deleted" not in caplog.text  # the next driver sees to it
    jobs.start(**{RETENTION.key: "RETAIN_ON_CANCELLATION"}).close(JobStatus.CANCELED)
    assert len(jobs.files()) == 4
    assert f"not deleted because it is being read: {old.uri}" in caplog.text
