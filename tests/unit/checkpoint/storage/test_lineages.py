import random
from pathlib import Path

import pytest

from headrace.checkpoint.errors import CheckpointFencedError, RecordNotTrustedError
from headrace.checkpoint.storage.checkpoint_storage import load_completed
from headrace.checkpoint.storage.file_systems import child_uri, files_below, is_there, replace_file
from headrace.checkpoint.storage.lineages import LineageInMemory, StoredLineage, lineage_of_job
from headrace.checkpoint.storage.metadata_key import MetadataKey, seal
from headrace.core.clock import ManualClock
from tests.unit.checkpoint.snapshots import JOB, KEY, LINEAGE


def take_over(
    folder: str, seed: int = 1, floor_id: int = 0, now_ms: int = 1_700_000_000_000
) -> StoredLineage:
    clock = ManualClock(now_ms)
    return StoredLineage.take_over(folder, LINEAGE, floor_id, clock, random.Random(seed), KEY)


def test_ids_begin_at_one_and_rise(folder: str) -> None:
    lineage = take_over(folder)
    assert (lineage.epoch, lineage.lineage_id) == (1, LINEAGE)
    assert [lineage.take_id() for _ in range(3)] == [1, 2, 3]


def test_a_later_driver_has_the_next_epoch_and_goes_on_with_the_ids(folder: str) -> None:
    first = take_over(folder)
    assert [first.take_id(), first.take_id()] == [1, 2]
    second = take_over(folder, seed=2)
    assert second.epoch == 2
    assert second.take_id() == 3


def test_going_back_to_an_older_checkpoint_uses_no_id_again(folder: str) -> None:
    first = take_over(folder)
    for _ in range(9):
        first.take_id()
    assert take_over(folder, seed=2, floor_id=4).take_id() == 10


def test_a_lineage_without_a_record_goes_on_from_the_time(folder: str) -> None:
    moved = take_over(folder, floor_id=4, now_ms=1_700_000_000_000)
    assert moved.take_id() == 1_700_000_000_001
    moved.decided(1_700_000_000_001)
    assert take_over(folder, seed=2, floor_id=4, now_ms=1_800_000_000_000).take_id() == (
        1_700_000_000_002
    )


def test_a_driver_whose_time_is_over_gets_no_id(folder: str) -> None:
    zombie = take_over(folder)
    zombie.take_id()
    take_over(folder, seed=2)
    with pytest.raises(CheckpointFencedError, match="epoch 2 has taken over"):
        zombie.take_id()
    with pytest.raises(CheckpointFencedError):
        zombie.validate_epoch()


def test_what_an_earlier_driver_was_about_to_publish_is_shut_out(folder: str) -> None:
    job = child_uri(folder, "job")
    zombie = take_over(folder)
    assert zombie.take_id(job) == 1
    take_over(folder, seed=2)
    assert [file.relative_path for file in files_below(job)] == ["chk-1/_metadata"]
    assert load_completed(child_uri(job, "chk-1"), KEY) is None


def test_a_savepoint_that_an_earlier_driver_was_about_to_publish_is_shut_out(folder: str) -> None:
    elsewhere = child_uri(folder, "savepoints", "savepoint-1")
    zombie = take_over(folder)
    zombie.placed(zombie.take_id(child_uri(folder, "job")), elsewhere)
    assert take_over(folder, seed=2).earlier_savepoints == (elsewhere,)
    assert [file.relative_path for file in files_below(elsewhere)] == ["_metadata"]
    assert load_completed(elsewhere, KEY) is None


def test_a_driver_whose_time_is_over_has_no_place_for_a_savepoint(folder: str) -> None:
    zombie = take_over(folder)
    checkpoint_id = zombie.take_id(child_uri(folder, "job"))
    take_over(folder, seed=2)
    with pytest.raises(CheckpointFencedError, match="epoch 2 has taken over"):
        zombie.placed(checkpoint_id, child_uri(folder, "savepoints", "savepoint-1"))


def test_who_left_in_order_has_nothing_to_shut_out(folder: str) -> None:
    first = take_over(folder)
    checkpoint_id = first.take_id(child_uri(folder, "job"))
    first.placed(checkpoint_id, child_uri(folder, "savepoints", "savepoint-1"))
    first.decided(checkpoint_id)
    first.leave()
    assert take_over(folder, seed=2).earlier_savepoints == ()


def test_the_record_does_not_grow(folder: str) -> None:
    lineage = take_over(folder)
    for _ in range(40):
        lineage.decided(lineage.take_id())
    names = [file.relative_path.rpartition("/")[2] for file in files_below(folder)]
    assert sorted(names) == ["epoch-00000001", "id-000000000040"]


def test_ids_under_way_stay_on_record(folder: str) -> None:
    lineage = take_over(folder)
    lineage.take_id("job")
    lineage.decided(lineage.take_id("job"))
    lineage.take_id("job")
    names = [file.relative_path.rpartition("/")[2] for file in files_below(folder)]
    assert sorted(names)[1:] == ["id-000000000001", "id-000000000003"]


def test_who_left_without_having_needed_its_last_id_has_nothing_to_shut_out(folder: str) -> None:
    job = child_uri(folder, "job")
    first = take_over(folder)
    for _ in range(3):
        first.take_id(job)
    for number in (1, 2, 3):
        first.decided(number)
    first.leave()
    second = take_over(folder, seed=2)
    assert not is_there(job)
    assert second.take_id(job) == 4


def test_a_record_that_somebody_else_wrote_makes_no_file_anywhere(
    folder: str, tmp_path: Path
) -> None:
    """It names a folder in which the next driver would make `_metadata`, with the rights of its user."""
    take_over(folder).take_id()
    (record,) = [file.uri for file in files_below(folder) if "/id-" in file.uri]
    number = int(record.rpartition("-")[2])
    elsewhere = tmp_path / "elsewhere"
    forged = b'{"epoch":1,"folder_uri":"","savepoint_uri":"%s"}' % str(elsewhere).encode()
    subject = f"id {number} of lineage {LINEAGE}"
    strangers = MetadataKey(bytes(range(1, 33)))
    moved = seal(forged, f"id {number + 1} of lineage {LINEAGE}", KEY)
    for content in (forged + b"\n", seal(forged, subject, strangers), moved):
        replace_file(record, content, "token")
        with pytest.raises(RecordNotTrustedError, match="cannot be trusted"):
            take_over(folder, seed=2)
    assert not elsewhere.exists()
    replace_file(record, seal(forged, subject, KEY), "token")
    take_over(folder, seed=2)
    assert elsewhere.exists()


def test_the_lineage_of_a_job_is_believed_where_it_is_sealed_for_this_job(folder: str) -> None:
    job_folder = child_uri(folder, "job")
    assert lineage_of_job(job_folder, JOB, "ab", "1", KEY) == "ab"
    assert lineage_of_job(job_folder, JOB, "cd", "2", KEY) == "ab"
    replace_file(child_uri(job_folder, "lineage"), b"../../elsewhere\n", "token")
    with pytest.raises(RecordNotTrustedError):
        lineage_of_job(job_folder, JOB, "cd", "3", KEY)


def test_in_memory_ids_go_on_from_what_was_restored() -> None:
    lineage = LineageInMemory(LINEAGE, floor_id=5)
    lineage.validate_epoch()
    assert [lineage.take_id(), lineage.take_id()] == [6, 7]
