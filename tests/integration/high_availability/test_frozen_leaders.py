"""A leader freezes for longer than its lease, and goes on beside its successor: it changes nothing, and stands by.

It freezes anywhere, or at the worst moments: after it has looked whether it leads, and before it writes. Real processes
and signals; the options of the election are the defaults.
"""

import pytest

from headrace.core.process.failpoints import Failpoint
from testkit.waiting import wait_until
from tests.integration.high_availability.drivers import (
    INCREMENTS,
    DriverProcess,
    NumbersJob,
    Rivals,
)

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(300)]

COUNT = 6_000


def frozen_beside_standby(
    pair: Rivals, job: NumbersJob, failpoint: str
) -> tuple[DriverProcess, DriverProcess]:
    """Start a leader that freezes at this point of a job, and a standby; return both once it is frozen."""
    first = pair.start("first", failpoints=failpoint)
    first.wait_for("leads")
    second = pair.start("second")
    second.await_standby()
    first.say("submit", str(job.file))
    wait_until(lambda: first.is_frozen, 120, "the first leader is frozen")
    return first, second


def lead_in_its_place(second: DriverProcess, job: NumbersJob) -> None:
    """Wait until the second one leads, and has committed output."""
    second.wait_for("leads")
    before = sum(job.output().values())
    wait_until(lambda: sum(job.output().values()) > before, 120, "output of the second leader")


def assert_stands_by_behind_its_successor(
    first: DriverProcess, second: DriverProcess, job: NumbersJob, pair: Rivals
) -> None:
    first.go_on()
    first.await_log("this process is a standby")
    second.say("result", str(job.job_id))
    assert second.wait_for("result")["status"] == "FINISHED"
    assert job.output() == job.expected
    pair.assert_gave_nothing_back(first, second)
    second.close()
    first.await_log("this process now leads the cluster 'test' (epoch 3)")


@pytest.mark.parametrize("pair", ["folder", "s3", "zookeeper", "kubernetes"], indirect=True)
def test_a_leader_that_was_frozen_past_its_lease_stands_by_and_leads_again(pair: Rivals) -> None:
    job = NumbersJob(pair.folder, count=COUNT)
    first = pair.start("first")
    first.wait_for("leads")
    second = pair.start("second")
    first.say("submit", str(job.file))
    first.wait_for("submitted")
    job.await_begin()
    second.await_standby()
    first.stop()
    lead_in_its_place(second, job)
    assert_stands_by_behind_its_successor(first, second, job, pair)


@pytest.mark.parametrize(
    ("point", "pair"),
    [
        (Failpoint.DELETING, "folder"),
        (Failpoint.DELETING, "s3"),
        (Failpoint.PUBLISHING, "folder"),
        (Failpoint.PUBLISHING, "s3"),
        (Failpoint.METADATA_WRITTEN, "folder"),
        (Failpoint.COMMIT_BEGUN, "folder"),
        (Failpoint.COMMIT_HALF, "folder"),
        (Failpoint.JOB_STORED, "folder"),
        (Failpoint.JOB_STORED, "s3"),
        (Failpoint.DELETING, "kubernetes"),
        (Failpoint.PUBLISHING, "kubernetes"),
        (Failpoint.METADATA_WRITTEN, "kubernetes"),
        (Failpoint.COMMIT_HALF, "kubernetes"),
        (Failpoint.JOB_STORED, "kubernetes"),
        (Failpoint.PUBLISHING, "zookeeper"),
        (Failpoint.JOB_STORED, "zookeeper"),
    ],
    indirect=["pair"],
    ids=lambda value: value if isinstance(value, str) else value.value,
)
def test_what_a_frozen_leader_was_about_to_write_changes_nothing(
    pair: Rivals, point: Failpoint
) -> None:
    job = NumbersJob(pair.folder, count=COUNT)
    # Early enough for an object store, in which the job has few checkpoints before it ends.
    pair.watch_pointers(job)
    time_text = {Failpoint.JOB_STORED: "", Failpoint.PUBLISHING: "#2"}.get(point, "#3")
    first, second = frozen_beside_standby(pair, job, f"{point.value}{time_text}=stop")
    lead_in_its_place(second, job)
    assert_stands_by_behind_its_successor(first, second, job, pair)
    assert pair.pointer_mistakes(job) == ()


def test_a_leader_that_freezes_amid_a_deletion_takes_no_increment_from_its_successor(
    pair: Rivals,
) -> None:
    job = NumbersJob(pair.folder, count=COUNT, settings=INCREMENTS, is_keyed=True)
    first, second = frozen_beside_standby(pair, job, f"{Failpoint.DELETING.value}#3=stop")
    lead_in_its_place(second, job)
    shared = pair.storage / "checkpoints" / job.job_id.hex() / "shared"
    assert list(shared.iterdir()), "its checkpoints share nothing"
    assert_stands_by_behind_its_successor(first, second, job, pair)


@pytest.mark.parametrize("pair", ["folder", "s3", "kubernetes"], indirect=True)
def test_a_leader_that_freezes_when_the_end_of_a_job_is_stored_leaves_the_rest_to_its_successor(
    pair: Rivals,
) -> None:
    job = NumbersJob(pair.folder, count=1_000)
    first, second = frozen_beside_standby(pair, job, f"{Failpoint.RESULT_STORED.value}=stop")
    second.wait_for("leads")
    pair.assert_forgotten(job)
    first.go_on()
    first.await_log("this process is a standby")
    second.say("result", str(job.job_id))
    assert second.wait_for("result")["status"] == "FINISHED"
    assert job.output() == job.expected
    pair.assert_forgotten(job)


@pytest.mark.parametrize("pair", ["folder", "s3", "kubernetes"], indirect=True)
def test_a_leader_that_freezes_before_it_stores_the_end_of_a_job_does_not_end_it(
    pair: Rivals,
) -> None:
    job = NumbersJob(pair.folder)
    first, second = frozen_beside_standby(pair, job, f"{Failpoint.RESULT_CHECKED.value}=stop")
    assert job.output() == job.expected
    second.wait_for("leads")
    second.say("running", str(job.job_id))
    assert second.wait_for("running")["restored"], "it does not go on with the job"
    first.go_on()
    first.await_log("this process is a standby")
    second.say("result", str(job.job_id))
    assert second.wait_for("result")["status"] == "FINISHED"
    assert job.output() == job.expected
    pair.assert_forgotten(job)


@pytest.mark.parametrize("pair", ["folder", "s3", "zookeeper", "kubernetes"], indirect=True)
def test_a_job_that_a_frozen_leader_was_about_to_store_runs_under_no_later_leader(
    pair: Rivals,
) -> None:
    job = NumbersJob(pair.folder, count=500)
    first, second = frozen_beside_standby(pair, job, f"{Failpoint.JOB_CHECKED.value}=stop")
    second.wait_for("leads")
    # Its client, which has no answer, brings it to the next leader, where it ends and is forgotten.
    second.say("submit", str(job.file))
    second.wait_for("submitted")
    second.say("result", str(job.job_id))
    assert second.wait_for("result")["status"] == "FINISHED"
    pair.assert_forgotten(job, below="jobs")
    pair.assert_forgotten(job, below="job-results")
    first.go_on()
    assert first.wait_for("refused")["error"] == "NotLeadingError"
    first.await_log("this process is a standby")
    second.close()
    first.await_log("this process now leads the cluster 'test' (epoch 3)")
    assert first.ask("jobs")["ids"] == []
    pair.assert_forgotten(job)
    assert job.output() == job.expected
