"""A bug in a part of a driver's control plane, as a real process: the process ends, and its first line says why.

With high availability the next driver goes on with the job, whose output comes out once; without it the job is FAILED
with that cause. Real processes and files.
"""

from collections.abc import Mapping
from typing import Final

import pytest

from tests.integration.high_availability.drivers import DriverProcess, NumbersJob, Rivals

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(300)]

NO_REPLACEMENTS: Final = {
    "headrace.resourcemanager.replacements": "0",
    "headrace.dispatcher.replacements": "0",
}
"""A Dispatcher or a ResourceManager that fails is followed by another one otherwise, in the same process."""
PLACES: Final = {
    "dispatcher": "/rpc/dispatcher",
    "resourcemanager": "/rpc/resourcemanager",
    "blobserver": "/rpc/blobserver",
    "leaders": "/rpc/leaders",
    "rest": "endpoint REST at http://127.0.0.1:",
    "election": "endpoint leader election of cluster 'test'",
    "timer": "a bug in timer;",
}
"""Parts of a control plane that it cannot do without, and what names each in an error."""


def start_first(pair: Rivals, options: Mapping[str, str]) -> DriverProcess:
    first = pair.start("first", **{"rest.port": "0", **NO_REPLACEMENTS, **options})
    first.wait_for("serves")
    return first


def begin_job(driver: DriverProcess, job: NumbersJob) -> None:
    driver.say("submit", str(job.file))
    driver.wait_for("submitted")
    job.await_begin()


def assert_ends_with_cause(driver: DriverProcess, part: str) -> None:
    assert driver.wait() == 1
    (said,) = [line for line in driver.log.splitlines() if line.startswith("error: ")]
    cause = f"the control plane of the cluster has failed: LookupError: a bug in {part}"
    assert said.startswith(f"error: {cause}")
    assert PLACES[part] in said


@pytest.mark.parametrize("part", PLACES)
def test_a_part_that_fails_ends_its_driver_and_the_next_one_goes_on_with_the_job(
    pair: Rivals, part: str
) -> None:
    job = NumbersJob(pair.folder, count=12_000)
    first = start_first(pair, {})
    # Before the job begins, which would otherwise end while a busy machine starts the standby.
    second = pair.start("second")
    second.await_standby()
    begin_job(first, job)
    first.say("fail", part)
    assert_ends_with_cause(first, part)
    # Its lease is not over yet: what comes now is of the next driver.
    before = sum(job.output().values())
    second.wait_for("leads")
    second.say("result", str(job.job_id))
    assert second.wait_for("result")["status"] == "FINISHED"
    assert sum(job.output().values()) > before
    assert job.output() == job.expected
    pair.assert_forgotten(job)


@pytest.mark.parametrize("part", [part for part in PLACES if part != "election"])
def test_without_high_availability_the_job_fails_with_the_error_of_the_part(
    pair: Rivals, part: str
) -> None:
    job = NumbersJob(pair.folder, count=1_000_000)
    only = start_first(pair, {"high-availability.type": "NONE"})
    begin_job(only, job)
    only.say("result", str(job.job_id))
    only.say("fail", part)
    result = only.wait_for("result")
    assert result["status"] == "FAILED"
    assert f"LookupError: a bug in {part}" in result["failure"].partition("\n")[0]
    assert_ends_with_cause(only, part)


@pytest.mark.parametrize("kind", ["file", "NONE"])
def test_the_bug_of_a_job_master_fails_its_job_alone(pair: Rivals, kind: str) -> None:
    job = NumbersJob(pair.folder, count=1_000_000)
    only = start_first(pair, {"high-availability.type": kind})
    begin_job(only, job)
    only.say("result", str(job.job_id))
    only.say("fail", "jobmanager")
    result = only.wait_for("result")
    assert result["status"] == "FAILED"
    assert "LookupError: a bug in jobmanager" in result["failure"].partition("\n")[0]
    assert only.is_alive
    only.close()
    assert only.wait() == 0
