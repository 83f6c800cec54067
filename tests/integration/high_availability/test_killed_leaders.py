"""A leader is killed, and the standby that waits beside it goes on with its job: all output is there once.

Real processes, signals and files; the options of the election are the defaults.
"""

from pathlib import Path

import pytest

from tests.integration.high_availability.drivers import NumbersJob, Rivals, rivals

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(300)]

FAILOVER_MAX_S = 12.0


@pytest.fixture
def pair(tmp_path: Path):
    with rivals(tmp_path) as one:
        yield one


def test_a_standby_goes_on_with_the_job_of_a_killed_leader_within_12_s(pair: Rivals) -> None:
    job = NumbersJob(pair.folder)
    first = pair.start("first")
    first.wait_for("leads")
    second = pair.start("second")
    first.say("submit", str(job.file))
    first.wait_for("submitted")
    job.await_begin()
    assert second.find("leads") is None
    first.kill()
    second.wait_for("leads")
    second.say("result", str(job.job_id))
    assert second.wait_for("result")["status"] == "FINISHED"
    assert job.output() == job.expected
