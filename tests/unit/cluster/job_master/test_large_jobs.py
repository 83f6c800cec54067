"""What a job costs its master grows as its tasks do: no step looks at all of them whenever one of them changes.

Counted in calls of functions, which are the same on any machine.
"""

from collections.abc import Callable

import pytest

from headrace.core.lifecycle import ExecutionState, JobStatus
from headrace.gateways.messages import SlotOffer
from headrace.graph.job_graph import PartitionerKind
from tests.unit.cluster.cluster_samples import SLOT_PROFILE, TM_1, allocation
from tests.unit.cluster.job_master.counted_calls import calls_of
from tests.unit.cluster.job_master.scheduler_world import USER_ERROR, Fixture

S = ExecutionState
FEW, MANY = 50, 200
# Four times the tasks may take four times the calls; a quadratic step would take sixteen times as many.
GROWTH_MAX = 1.3 * MANY / FEW


def offer_slots(job: Fixture, count: int) -> None:
    """One TaskManager after the other, ten slots each, and a look at what is missing after each."""
    for first in range(0, count, 10):
        offers = [
            SlotOffer(allocation(number), 0, SLOT_PROFILE) for number in range(first, first + 10)
        ]
        job.scheduler.pool.offer(TM_1, offers, 0)
        job.scheduler.slots_changed()


def run_to_its_end(count: int) -> None:
    job = Fixture(kind=PartitionerKind.FORWARD, parallelism=count)
    job.scheduler.start()
    offer_slots(job, count)
    job.report_all(S.RUNNING)
    job.report_all(S.FINISHED)
    assert job.services.commit_count == 1


def cancel(count: int) -> None:
    job = Fixture(kind=PartitionerKind.FORWARD, parallelism=count)
    job.scheduler.start()
    offer_slots(job, count)
    job.report_all(S.RUNNING)
    job.scheduler.cancel()
    job.report_all(S.CANCELED)
    assert job.scheduler.status is JobStatus.CANCELED


def restart(count: int) -> None:
    job = Fixture(restarts=1, kind=PartitionerKind.FORWARD, strategy="full", parallelism=count)
    job.scheduler.start()
    offer_slots(job, count)
    job.report_all(S.RUNNING)
    job.report(job.attempts[0], S.FAILED, USER_ERROR)
    job.report_all(S.CANCELED)
    job.services.later[0][1]()
    assert job.states == [S.DEPLOYING] * 2 * count


@pytest.mark.parametrize("course", [run_to_its_end, cancel, restart])
def test_four_times_the_tasks_are_about_four_times_the_work(course: Callable[[int], None]) -> None:
    assert calls_of(lambda: course(MANY)) < GROWTH_MAX * calls_of(lambda: course(FEW))
