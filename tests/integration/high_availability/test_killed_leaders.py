"""A leader dies, and the standby that waits beside it goes on with its job: all output is there, and once.

Real processes, signals and files; the options of the election are the defaults.
"""

import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from headrace.checkpoint.options import CHECKPOINT_DIRECTORY, NUM_RETAINED
from headrace.cluster.high_availability.options import FILES, KUBERNETES, ZOOKEEPER
from headrace.core.process.failpoints import Failpoint
from headrace.graph.pipeline_options import RUNTIME_MODE
from testkit.waiting import wait_until
from tests.integration.high_availability.drivers import NumbersJob, Rivals
from tests.integration.high_availability.leader_kills import (
    Step,
    freeze_past_lease,
    kill_at,
    kill_leader_of_another_host,
    kill_with_task_manager,
    kill_without_pause,
)
from tests.integration.high_availability.outcomes import Outcome, slack_s
from tests.integration.high_availability.planted_bugs import VARIABLE
from tests.integration.programs.s3_server import S3Server

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(300)]

FAILOVER_S = 12.0


@pytest.mark.parametrize("pair", ["folder", "s3"], indirect=True)
def test_a_standby_goes_on_with_the_job_of_a_killed_leader(pair: Rivals) -> None:
    job = NumbersJob(pair.folder)
    first = pair.start("first")
    first.wait_for("leads")
    second = pair.start("second")
    first.say("submit", str(job.file))
    first.wait_for("submitted")
    job.await_begin()
    second.await_standby()
    submitted_ms = first.ask("running", str(job.job_id))["submitted_ms"]
    before = sum(job.output().values())
    first.kill()
    killed_s = time.monotonic()
    led_s = second.wait_for("leads")["at"]
    wait_until(lambda: sum(job.output().values()) > before, 120, "output of the second leader")
    print(f"led after {led_s - killed_s:.1f} s, output after {time.monotonic() - killed_s:.1f} s")
    assert led_s - killed_s < FAILOVER_S + slack_s()
    running = second.ask("running", str(job.job_id))
    assert running["submitted_ms"] == running["started_ms"] == submitted_ms
    second.say("result", str(job.job_id))
    assert second.wait_for("result")["status"] == "FINISHED"
    assert job.output() == job.expected
    pair.assert_forgotten(job)


@pytest.mark.parametrize("step", Step, ids=lambda step: step.name.lower())
def test_a_leader_that_dies_at_a_step_of_a_job_loses_and_repeats_nothing(
    step: Step, tmp_path: Path
) -> None:
    outcome = kill_at(step, tmp_path)
    assert outcome.mistakes == ()
    assert outcome.failover_s < outcome.bound_s + slack_s()


@pytest.mark.parametrize("step", [Step.METADATA, Step.RESULT], ids=lambda step: step.name.lower())
def test_a_leader_that_dies_at_a_step_loses_and_repeats_nothing_in_an_object_store(
    step: Step, tmp_path: Path, object_store: S3Server
) -> None:
    outcome = kill_at(step, tmp_path, object_store.folder(tmp_path.name))
    assert outcome.mistakes == ()
    assert outcome.failover_s < outcome.bound_s + slack_s()


@pytest.mark.parametrize("kind", [FILES, ZOOKEEPER, KUBERNETES])
def test_a_standby_of_another_host_goes_on_within_the_bound_with_the_terms_that_keep_it(
    kind: str, tmp_path: Path
) -> None:
    outcome = kill_leader_of_another_host(kind, tmp_path)
    print(f"all tasks ran after {outcome.failover_s:.1f} s, {outcome.note}")
    assert outcome.mistakes == ()
    assert outcome.failover_s < outcome.bound_s + slack_s()


def test_leaders_that_die_one_after_the_other_lose_and_repeat_nothing(tmp_path: Path) -> None:
    outcome = kill_without_pause(tmp_path, 10.0)
    assert outcome.kill_count > 1
    assert outcome.mistakes == ()
    assert outcome.failover_s < outcome.bound_s + slack_s()


def test_a_leader_that_dies_with_a_task_manager_loses_and_repeats_nothing(tmp_path: Path) -> None:
    outcome = kill_with_task_manager(tmp_path)
    assert outcome.mistakes == ()
    assert outcome.failover_s < outcome.bound_s + slack_s()


def test_a_leader_that_dies_with_jobs_in_several_states_loses_and_repeats_nothing(
    pair: Rivals,
) -> None:
    def job(name: str, count: int) -> NumbersJob:
        folder = pair.folder / name
        folder.mkdir()
        # None of its checkpoints is deleted before its end, at which the first leader gets no further than that.
        return NumbersJob(folder, count=count, settings={NUM_RETAINED.key: "10000"})

    ended, running = job("ended", 300), [job(f"running-{n}", 20_000) for n in range(5)]
    starting = job("starting", 1_000)
    slots = {"taskmanager.numberOfTaskSlots": "4"}
    points = f"{Failpoint.DELETING.value}=loop; {Failpoint.JOB_STORED.value}#7=kill"
    first = pair.start("first", failpoints=points, **slots)
    first.wait_for("leads")
    second = pair.start("second", **slots)
    second.await_standby()
    for each in (ended, *running):
        first.ask_for("submitted", "submit", str(each.file))
    for each in running:
        each.await_begin()
    result = f"job-results/{ended.job_id.hex()}_DIRTY-*.json"
    wait_until(lambda: any(pair.storage.glob(result)), 120, "the result of the job that has ended")

    first.say("submit", str(starting.file))
    assert first.wait() == -9
    killed_s = time.monotonic()
    newest = {each: pair.newest_checkpoint(each) for each in (*running, starting)}
    assert any(pair.storage.glob(result)), "its clean-up is done"
    assert all(sum(each.output().values()) < each.count for each in running)
    assert newest[starting] is None
    second.wait_for("leads")
    told = {each: second.ask("running", str(each.job_id)) for each in newest}
    failover_s = max(one["at"] for one in told.values()) - killed_s
    print(f"all jobs ran after {failover_s:.1f} s")
    assert {each: one["restored"] for each, one in told.items()} == newest
    assert failover_s < FAILOVER_S + slack_s()
    for each in (ended, *running, starting):
        assert second.ask("result", str(each.job_id))["status"] == "FINISHED"
        assert each.output() == each.expected
        pair.assert_forgotten(each)


def test_a_leader_that_freezes_and_goes_on_behind_its_successor_writes_no_checkpoint(
    tmp_path: Path,
) -> None:
    assert freeze_past_lease(tmp_path).mistakes == ()


@pytest.mark.parametrize(
    ("bug", "mistake", "run"),
    [
        ("point-before-publishing", "the pointer names", partial(kill_at, Step.ACKNOWLEDGED)),
        ("let-earlier-leaders-publish", "two leaders have written", freeze_past_lease),
    ],
    ids=["point-before-publishing", "let-earlier-leaders-publish"],
)
def test_a_bug_that_gives_a_job_two_newest_checkpoints_is_found(
    bug: str,
    mistake: str,
    run: Callable[[Path], Outcome],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(VARIABLE, bug)
    assert any(mistake in found for found in run(tmp_path).mistakes)


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


@pytest.mark.parametrize("mode", ["BATCH", "AUTOMATIC"])
def test_a_job_in_batch_mode_is_refused_and_no_leader_knows_it(pair: Rivals, mode: str) -> None:
    # All of its sources end, so that AUTOMATIC is BATCH.
    job = NumbersJob(pair.folder, settings={RUNTIME_MODE.key: mode}, padding=200_000)
    first = pair.start("first")
    first.wait_for("leads")
    second = pair.start("second")
    second.await_standby()
    refused = first.ask_for("refused", "submit", str(job.file))
    assert refused["error"] == "ProgramError"
    assert "the next leader of a cluster with high availability" in refused["text"]
    assert "run it in STREAMING mode" in refused["text"]
    assert first.ask("jobs")["ids"] == []
    first.kill()
    assert second.ask("jobs")["ids"] == []
    pair.assert_forgotten(job)
    assert not job.is_begun


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


def test_a_leader_deletes_what_a_killed_one_has_left_half_written(pair: Rivals) -> None:
    left = pair.storage / "job-results" / ".run-1.00112233aabbccdd"
    left.parent.mkdir(parents=True)
    left.touch()
    os.utime(left, (1_700_000_000, 1_700_000_000))
    pair.start("first").wait_for("leads")
    assert not left.exists()


@pytest.mark.parametrize("is_killed", [False, True], ids=["same-leader", "next-leader"])
def test_deletions_that_fail_at_the_end_of_a_job_are_tried_again_until_nothing_is_left(
    pair: Rivals, is_killed: bool
) -> None:
    control = pair.folder / "control"
    checkpoints = f"faulty://{pair.folder}/checkpoints?control={control}"
    job = NumbersJob(pair.folder, count=1_000, settings={CHECKPOINT_DIRECTORY.key: checkpoints})
    folder = pair.folder / "checkpoints" / job.job_id.hex()
    leader = pair.start("first", failpoints=f"{Failpoint.RESULT_STORED.value}=stop")
    leader.wait_for("leads")
    leader.say("submit", str(job.file))
    wait_until(lambda: leader.is_frozen, 120, "all output is committed")
    control.write_text("fail_writes=1")
    leader.go_on()
    leader.say("result", str(job.job_id))
    assert leader.wait_for("result")["status"] == "FINISHED"  # nobody waits for the deletions
    leader.await_log("cannot find out whether")
    if is_killed:
        leader.kill()
        leader = pair.start("second")
        leader.wait_for("leads")
    results = [file.name for file in (pair.storage / "job-results").iterdir()]
    assert any(f"{job.job_id.hex()}_DIRTY" in name for name in results), results
    assert folder.exists()
    control.write_text("")
    pair.assert_forgotten(job)
    assert not folder.exists()
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
    assert pair.newest_checkpoint(job)
