"""A cluster for one job ends when nobody brings the job, or nobody asks about it any more."""

from headrace.core.lifecycle import JobStatus
from headrace.spark.session_cluster import JOB_WAIT_MS, RESULT_WAIT_MS, JobEnd


def test_it_waits_for_its_job_and_ends_where_none_comes() -> None:
    end = JobEnd(is_attached=True)
    assert not end.is_over([], 0)
    assert not end.is_over([], JOB_WAIT_MS - 1)
    assert end.is_over([], JOB_WAIT_MS)


def test_it_stays_for_as_long_as_the_job_runs() -> None:
    end = JobEnd(is_attached=False)
    assert not end.is_over([], 0)
    assert not end.is_over([JobStatus.RUNNING], 10 * JOB_WAIT_MS)
    assert not end.is_over([JobStatus.RESTARTING], 20 * JOB_WAIT_MS)


def test_the_end_of_a_job_is_there_for_its_attached_client_for_a_while() -> None:
    end = JobEnd(is_attached=True)
    assert not end.is_over([JobStatus.RUNNING], 0)
    assert not end.is_over([JobStatus.FAILED], 5)
    assert not end.is_over([JobStatus.FAILED], 5 + RESULT_WAIT_MS - 1)
    assert end.is_over([JobStatus.FAILED], 5 + RESULT_WAIT_MS)


def test_a_job_that_has_ended_before_it_was_seen_to_run_has_its_time_too() -> None:
    end = JobEnd(is_attached=True)
    assert not end.is_over([], 0)
    assert not end.is_over([JobStatus.FINISHED], JOB_WAIT_MS)
    assert end.is_over([JobStatus.FINISHED], JOB_WAIT_MS + RESULT_WAIT_MS)


def test_a_job_that_nobody_waits_for_takes_its_cluster_along_soon() -> None:
    end = JobEnd(is_attached=False)
    assert not end.is_over([JobStatus.CANCELED], 0)
    assert end.is_over([JobStatus.CANCELED], RESULT_WAIT_MS / 10)
