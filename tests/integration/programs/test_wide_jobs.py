"""Jobs that are too wide for now, on real processes: they keep no slots from narrower ones, nor from each other."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from testkit.waiting import wait_until
from tests.integration.programs.process_cluster import process_cluster
from tests.integration.programs.process_jobs import BOUNDED, ProcessJobs

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]


@pytest.fixture
def jobs(tmp_path: Path) -> Iterator[ProcessJobs]:
    with process_cluster(tmp_path, 4, BOUNDED) as (handle, driver):
        yield ProcessJobs(handle, driver)


def test_a_job_that_is_too_wide_for_now_holds_no_slot_and_runs_once_it_can(
    jobs: ProcessJobs,
) -> None:
    first = jobs.submit(2)
    wait_until(lambda: jobs.runs(first), what="the first job runs")
    wide = jobs.submit(3)
    wait_until(lambda: "lacks 3 of 3 slot(s) and takes none" in jobs.explanation(), what="its wait")
    narrow = jobs.submit(2)
    wait_until(lambda: jobs.runs(narrow), what="the narrower job behind it runs")
    assert jobs.held_by(wide) == set()
    jobs.cancel(first)
    assert not jobs.runs(wide)
    jobs.cancel(narrow)
    wait_until(lambda: jobs.runs(wide), what="the wide job runs")


def test_of_two_jobs_that_would_hold_half_each_the_first_runs_and_then_the_other(
    jobs: ProcessJobs,
) -> None:
    first, second = jobs.submit(2), jobs.submit(2)
    wait_until(lambda: jobs.runs(first) and jobs.runs(second), what="both jobs run")
    # Each loses one of its two TaskManagers, and the host has no room for others.
    jobs.driver.count = 2
    lost = {min(jobs.held_by(first)), min(jobs.held_by(second))}
    for process in jobs.driver.live:
        if process.name in lost:
            process.kill()
    wait_until(
        lambda: not jobs.held_by(second) and not lost & jobs.held_by(first),
        what="the second job gives back what it has left",
    )
    wait_until(lambda: jobs.runs(first), what="the first job has the slots of both")
    assert not jobs.runs(second)
    jobs.cancel(first)
    wait_until(lambda: jobs.runs(second), what="the second job runs")
