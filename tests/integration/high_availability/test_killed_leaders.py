"""A leader dies, and the standby that waits beside it goes on with its job: all output is there, and once.

Real processes, signals and files; the options of the election are the defaults.
"""

import time
from collections.abc import Generator
from pathlib import Path

import pytest

from headrace.core.process.failpoints import Failpoint
from testkit.waiting import wait_until
from tests.integration.high_availability.drivers import NumbersJob, Rivals, rivals

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(300)]

LEASE_S = 6.0
SLACK_S = 30.0
"""For the start of processes on a machine that does much else."""


@pytest.fixture
def pair(tmp_path: Path) -> Generator[Rivals]:
    with rivals(tmp_path) as one:
        yield one


def test_a_standby_goes_on_with_the_job_of_a_killed_leader(pair: Rivals) -> None:
    job = NumbersJob(pair.folder)
    first = pair.start("first")
    first.wait_for("leads")
    second = pair.start("second")
    first.say("submit", str(job.file))
    first.wait_for("submitted")
    job.await_begin()
    second.await_standby()
    before = sum(job.output().values())
    first.kill()
    killed_s = time.monotonic()
    led_s = second.wait_for("leads")["at"]
    wait_until(lambda: sum(job.output().values()) > before, 120, "output of the second leader")
    print(f"led after {led_s - killed_s:.1f} s, output after {time.monotonic() - killed_s:.1f} s")
    assert led_s - killed_s < LEASE_S + SLACK_S
    second.say("result", str(job.job_id))
    assert second.wait_for("result")["status"] == "FINISHED"
    assert job.output() == job.expected
    pair.assert_forgotten(job)


@pytest.mark.parametrize(
    "point",
    [
        Failpoint.JOB_STORED,
        Failpoint.METADATA_WRITTEN,
        Failpoint.CHECKPOINT_PUBLISHED,
        Failpoint.COMMIT_HALF,
        Failpoint.JOB_ENDED,
        Failpoint.RESULT_STORED,
    ],
    ids=lambda point: point.value,
)
def test_a_leader_that_dies_at_a_step_of_a_job_loses_and_repeats_nothing(
    pair: Rivals, point: Failpoint
) -> None:
    job = NumbersJob(pair.folder, padding=200_000, count=1_000)
    # A later checkpoint than the first, where there are many.
    time_text = "" if point.value.startswith("job.") else "#3"
    first = pair.start("first", failpoints=f"{point.value}{time_text}=kill")
    first.wait_for("leads")
    second = pair.start("second")
    first.say("submit", str(job.file))
    assert first.wait() == -9
    second.wait_for("leads")
    second.say("result", str(job.job_id))
    assert second.wait_for("result")["status"] == "FINISHED"
    assert job.output() == job.expected
    pair.assert_forgotten(job)


def test_a_job_whose_leader_dies_before_it_is_stored_was_never_taken(pair: Rivals) -> None:
    job = NumbersJob(pair.folder, padding=200_000, count=100)
    first = pair.start("first", failpoints=f"{Failpoint.JOB_ACCEPTED.value}=kill")
    first.wait_for("leads")
    second = pair.start("second")
    first.say("submit", str(job.file))
    assert first.wait() == -9
    assert first.find("submitted") is None
    second.wait_for("leads")
    # Its client, which has heard nothing, submits it again, with the same id.
    second.say("submit", str(job.file))
    second.wait_for("submitted")
    second.say("result", str(job.job_id))
    assert second.wait_for("result")["status"] == "FINISHED"
    assert job.output() == job.expected


def test_a_job_that_the_next_leader_has_recovered_is_refused_a_second_time(pair: Rivals) -> None:
    job = NumbersJob(pair.folder, count=1_000)
    first = pair.start("first", failpoints=f"{Failpoint.JOB_STORED.value}=kill")
    first.wait_for("leads")
    second = pair.start("second")
    first.say("submit", str(job.file))
    second.wait_for("leads")
    second.say("submit", str(job.file))
    assert second.wait_for("refused")["error"] == "DuplicateJobSubmissionError"
    second.say("result", str(job.job_id))
    assert second.wait_for("result")["status"] == "FINISHED"
    assert job.output() == job.expected


def test_a_leader_that_ends_in_order_hands_its_jobs_over_at_once(pair: Rivals) -> None:
    job = NumbersJob(pair.folder)
    # No lease of a minute runs out in this test: the standby follows because it is given back.
    terms = {
        "high-availability.file.leader-election.lease-duration": "10 min",
        "high-availability.file.leader-election.renew-deadline": "9 min",
    }
    first = pair.start("first", **terms)
    first.wait_for("leads")
    second = pair.start("second", **terms)
    first.say("submit", str(job.file))
    first.wait_for("submitted")
    job.await_begin()
    second.await_standby()
    first.close()
    assert first.wait() == 0
    second.wait_for("leads")
    second.say("result", str(job.job_id))
    assert second.wait_for("result")["status"] == "FINISHED"
    assert job.output() == job.expected


def test_jobs_of_a_cluster_that_a_client_ends_are_over(pair: Rivals) -> None:
    job = NumbersJob(pair.folder, count=1_000_000)
    first = pair.start("first")
    first.wait_for("leads")
    first.say("submit", str(job.file))
    first.wait_for("submitted")
    job.await_begin()
    first.say("result", str(job.job_id))
    first.say("shut-down")
    assert first.wait_for("result")["status"] == "CANCELED"
    assert first.wait() == 0
    pair.assert_forgotten(job, below="jobs")
    pair.assert_forgotten(job, below="job-results")
    # Somebody may go on from there by hand, as after the end of any cluster.
    assert list((pair.storage / "checkpoints" / job.job_id.hex()).glob("chk-*/_metadata"))
