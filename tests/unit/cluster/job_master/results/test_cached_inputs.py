"""A job that reads what an earlier one left: asked for with each deployment, and the end of the job once it is lost."""

import msgspec
import pytest

from headrace.cluster.error_reports import error_info_of
from headrace.cluster.job_master.failover.failure_history import Failure
from headrace.core.errors import ClusterDatasetCorruptedError
from headrace.core.lifecycle import JobStatus
from headrace.core.shuffle_descriptors import ResultPartitionType, ShuffleDescriptor
from headrace.gateways.messages import ErrorInfo
from headrace.network.errors import ConnectionLostError, StorageError
from tests.unit.cluster.cluster_samples import (
    TM_1,
    TM_2,
    attempt,
)
from tests.unit.cluster.job_master.reading_job import DATA_SET, PLACES, ReadingJob, S
from tests.unit.cluster.job_master.scheduler_world import USER_ERROR


@pytest.fixture
def job() -> ReadingJob:
    return ReadingJob()


def test_each_subtask_reads_its_partition_as_a_whole(job: ReadingJob) -> None:
    job.run()
    assert job.services.asked_for == [DATA_SET]
    gates = [descriptor.input_gates for _, descriptor in job.services.submitted][:2]
    for number, (gate,) in enumerate(gates):
        (channel,) = gate.channels
        assert channel.shuffle == PLACES[number] and channel.subpartition_index == 0
        assert gate.result_type is ResultPartitionType.BLOCKING_PERSISTENT
        assert gate.data_set_id == DATA_SET.data_set_id and gate.input_number == 0


def test_a_job_whose_own_code_fails_restarts_and_asks_anew_where_to_read(job: ReadingJob) -> None:
    job.run()
    moved = tuple(msgspec.structs.replace(each, location=None) for each in PLACES)
    job.services.places = {DATA_SET: moved}
    job.report(job.attempts[0], S.FAILED, USER_ERROR)
    job.restart()
    assert job.scheduler.status is JobStatus.RUNNING
    assert job.services.asked_for == [DATA_SET] * 2 and job.services.released_data_sets == []
    _, descriptor = job.services.submitted[-4]
    assert descriptor.input_gates[0].channels[0].shuffle == moved[0]


@pytest.mark.parametrize(
    ("found", "reason"),
    [((), "the cluster has lost it"), (PLACES[:1], "it has 1 partitions instead of 2")],
)
def test_what_is_not_there_as_a_whole_ends_the_job(
    job: ReadingJob, found: tuple[ShuffleDescriptor, ...], reason: str
) -> None:
    job.services.places = {DATA_SET: found}
    job.scheduler.start()
    job.give_slots()
    assert job.scheduler.status is JobStatus.FAILED and job.services.submitted == []
    assert job.cause.class_name == "ClusterDatasetCorruptedError"
    assert str(DATA_SET) in job.cause.text and reason in job.cause.text


def test_what_a_reader_cannot_read_ends_the_job_and_is_released(job: ReadingJob) -> None:
    job.run()
    error = ClusterDatasetCorruptedError(DATA_SET, "a batch does not have its checksum")
    job.report(job.attempts[0], S.FAILED, error_info_of(error, "task 'Cache'"))
    job.restart()
    assert job.scheduler.status is JobStatus.FAILED
    assert job.cause.class_name == "ClusterDatasetCorruptedError" and str(error) in job.cause.text
    assert job.cause.lost_data_set == DATA_SET and job.services.released_data_sets == [DATA_SET]


@pytest.mark.parametrize(
    "error", [StorageError("0.data", "no space left"), ConnectionLostError("tm-1", "reset")]
)
def test_a_reader_that_cannot_get_rid_of_its_own_result_restarts_and_what_it_reads_stays(
    job: ReadingJob, error: Exception
) -> None:
    job.run()
    job.report(job.attempts[0], S.FAILED, error_info_of(error))
    job.restart()
    assert job.scheduler.status is JobStatus.RUNNING and job.services.released_data_sets == []


def test_what_those_behind_the_readers_cannot_read_is_no_fault_of_the_data_set(
    job: ReadingJob,
) -> None:
    job.run()
    error = error_info_of(ConnectionLostError("tm-1", "reset"))
    job.report(job.attempts[2], S.FAILED, error)
    job.restart()
    assert job.scheduler.status is JobStatus.RUNNING and job.services.released_data_sets == []


def test_with_a_task_manager_that_is_still_read_from_the_job_ends(job: ReadingJob) -> None:
    job.run()
    lost = ErrorInfo("TaskManagerLostError", "tm-2 was lost", "EXTERNAL", recoverable=True)
    job.scheduler.lose_task_manager(TM_2, lost)
    job.restart()
    assert job.scheduler.status is JobStatus.FAILED
    assert job.cause.class_name == "ClusterDatasetCorruptedError"
    assert job.cause.lost_data_set == DATA_SET


def test_with_what_a_reader_has_read_that_would_begin_anew_the_job_ends_too(
    job: ReadingJob,
) -> None:
    job.run()
    job.report(job.attempts[1], S.FINISHED)
    lost = ErrorInfo("TaskManagerLostError", "tm-2 was lost", "EXTERNAL", recoverable=True)
    job.scheduler.lose_task_manager(TM_2, lost)
    job.restart()
    assert job.scheduler.status is JobStatus.FAILED and job.cause.lost_data_set == DATA_SET


def test_a_task_manager_from_which_nothing_is_read_is_restarted_from(job: ReadingJob) -> None:
    job.run()
    lost = ErrorInfo("TaskManagerLostError", "tm-1 was lost", "EXTERNAL", recoverable=True)
    job.scheduler.lose_task_manager(TM_1, lost)
    assert job.scheduler.status is JobStatus.RESTARTING


def test_what_nobody_has_to_read_again_may_be_lost() -> None:
    job = ReadingJob(result_type=ResultPartitionType.BLOCKING)
    job.run()
    for reader in job.attempts[:2]:
        job.report(reader, S.FINISHED)
    lost = ErrorInfo("TaskManagerLostError", "tm-2 was lost", "EXTERNAL", recoverable=True)
    job.scheduler.lose_task_manager(TM_2, lost)
    history = job.scheduler.history
    assert history.cause is None or history.cause.error.lost_data_set is None
    assert job.scheduler.status is not JobStatus.FAILED


@pytest.mark.parametrize("is_asked_again", [False, True])
def test_an_answer_that_comes_too_late_changes_nothing(
    job: ReadingJob, is_asked_again: bool
) -> None:
    job.services.answers_registrations = False
    job.scheduler.start()
    job.give_slots()
    version = job.services.version
    job.scheduler.fail_job(Failure(USER_ERROR))
    if is_asked_again:
        for _, action in job.services.later:
            action()
        assert job.services.asked_for == [DATA_SET] * 2 and job.services.version > version
    status = job.scheduler.status
    job.scheduler.inputs_found({DATA_SET: ()}, version)
    job.scheduler.inputs_found({DATA_SET: PLACES}, version)
    job.scheduler.lookup_failed(USER_ERROR, version)
    assert job.scheduler.status is status and job.services.registered == []
    assert job.scheduler.history.restart_count == 1
    if is_asked_again:
        job.scheduler.inputs_found({DATA_SET: PLACES}, job.services.version)
        assert len(job.services.registered) == 2


def test_a_lookup_without_an_answer_restarts_the_job(job: ReadingJob) -> None:
    job.services.answers_registrations = False
    job.scheduler.start()
    job.give_slots()
    job.scheduler.lookup_failed(USER_ERROR, job.services.version)
    assert job.cause == USER_ERROR and job.scheduler.status is JobStatus.RESTARTING


def test_it_knows_the_partitions_that_its_job_reads() -> None:
    inputs = ReadingJob().scheduler.cached_inputs
    assert inputs.reads(PLACES[1].partition_id)
    own = msgspec.structs.replace(PLACES[1].partition_id, producer=attempt(0))
    assert not inputs.reads(own)
