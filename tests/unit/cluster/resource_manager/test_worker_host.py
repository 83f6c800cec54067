"""WorkerHost: the next ResourceManager gets the workers of the one before, and no report of the host is lost."""

import pytest

from headrace.cluster.resource_manager.driver import PreviousWorkers, WorkerHost
from headrace.cluster.resource_manager.workers import worker_names
from headrace.core.errors import HostError
from headrace.core.ids import ResourceId
from headrace.gateways.messages import ResourceProfile
from tests.unit.cluster.resource_manager.resource_manager_world import WORKER, NotingDriver, World

OWN = ResourceProfile(python_executable="/opt/other/python")


class NotingListener:
    """Notes what it hears."""

    def __init__(self) -> None:
        self.heard: list[object] = []

    def worker_started(self, worker_id: ResourceId) -> None:
        self.heard.append(("started", worker_id))

    def worker_terminated(self, worker_id: ResourceId, diagnostics: str) -> None:
        self.heard.append(("terminated", worker_id))

    def worker_decommissioned(self, worker_id: ResourceId, cause: str) -> None:
        self.heard.append(("decommissioned", worker_id, cause))

    def interpreter_failed(self, interpreter: str, cause: str, *, recoverable: bool) -> None:
        self.heard.append(("interpreter failed", interpreter, cause, recoverable))

    def host_failed(self, error: BaseException) -> None:
        self.heard.append(error)


def opened(
    *, ends_with_first_worker: bool = True
) -> tuple[WorkerHost, NotingDriver, list[ResourceId]]:
    """Return a host with four workers whose first ResourceManager is about to be followed."""
    driver = NotingDriver()
    host = WorkerHost(driver, worker_names("w"), ends_with_first_worker=ends_with_first_worker)
    assert host.open(NotingListener()) == PreviousWorkers((), ())
    workers = [host.new_worker_id() for _ in range(4)]
    for worker_id in workers:
        own = OWN if worker_id == workers[0] else None
        host.request_worker(worker_id, own, ResourceProfile())
    return host, driver, workers


def test_workers_that_live_are_handed_over_and_names_are_never_used_twice() -> None:
    host, driver, (waiting, running, released, ended) = opened()
    for worker_id in (running, released, ended):
        driver.listener.worker_started(worker_id)
    host.release_worker(released)
    driver.listener.worker_terminated(ended, "gone")
    following = NotingListener()
    assert host.open(following) == PreviousWorkers((waiting,), (running,), {waiting: OWN})
    assert host.new_worker_id() not in (waiting, running, released, ended)
    driver.listener.worker_terminated(running, "gone")
    assert following.heard == [("terminated", running)]


def test_a_host_that_failed_between_two_leaders_is_told_to_the_next_one() -> None:
    host, driver, _ = opened()
    error = OSError("no host")
    driver.listener.host_failed(error)
    following = NotingListener()
    host.open(following)
    assert following.heard == [error]


def test_a_worker_that_has_registered_counts_as_started_before_the_host_says_so() -> None:
    """A TaskManager may run tasks before its host reports its start: the next ResourceManager must not give it up."""
    world = World()
    try:
        world.declare(1)
        world.register_with_slots()
        assert world.host.open(NotingListener()) == PreviousWorkers((), (WORKER,))
    finally:
        world.close()


def test_the_next_resource_manager_hears_which_workers_the_host_takes_away() -> None:
    host, driver, (leaving, gone, *_) = opened()
    driver.listener.worker_decommissioned(leaving, "sold")
    driver.listener.worker_decommissioned(gone, "sold too")
    driver.listener.worker_terminated(gone, "sold too")
    follower = NotingListener()
    host.open(follower)
    assert follower.heard == [("decommissioned", leaving, "sold")]


def test_the_host_counts_as_failed_where_no_worker_could_ever_start() -> None:
    host, driver, _ = opened()
    listener, follower = NotingListener(), NotingListener()
    host.open(listener)
    driver.listener.interpreter_failed("", "no package", recoverable=False)
    [error] = listener.heard
    assert isinstance(error, HostError) and str(error) == "no package"
    host.open(follower)
    assert follower.heard == [], "it finds out by itself whether that still holds"


@pytest.mark.parametrize("index", [0, 1], ids=["of a job's own", "usual"])
def test_a_usual_worker_that_cannot_start_may_do_so_later_where_another_one_could(
    index: int,
) -> None:
    host, driver, workers = opened()
    host.mark_started(workers[index])
    follower = NotingListener()
    host.open(follower)
    driver.listener.interpreter_failed("", "port in use", recoverable=False)
    driver.listener.interpreter_failed("/opt/other", "no package", recoverable=False)
    assert follower.heard == [
        ("interpreter failed", "", "port in use", True),
        ("interpreter failed", "/opt/other", "no package", False),
    ]


def test_a_leader_whose_first_worker_cannot_start_yet_stays_so_that_its_jobs_are_tried_again() -> (
    None
):
    host, driver, _ = opened(ends_with_first_worker=False)
    follower = NotingListener()
    host.open(follower)
    driver.listener.interpreter_failed("", "port in use", recoverable=False)
    assert follower.heard == [("interpreter failed", "", "port in use", True)]
