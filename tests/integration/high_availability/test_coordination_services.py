"""A contract of ZooKeeper, of Kubernetes, and of files: who leads, which writes are refused, and what is trusted.

ZooKeeper is a real server; Kubernetes is testkit's stand-in.
"""

import contextlib
import random
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Final

import pytest

from headrace.checkpoint.errors import CheckpointStorageError, RecordNotTrustedError
from headrace.checkpoint.storage.metadata_key import metadata_key
from headrace.cluster.high_availability.coordination import Coordination, open_coordination
from headrace.cluster.high_availability.job_graph_store import (
    JobGraphStore,
    StoredJobGraph,
    UnreadableJobGraph,
)
from headrace.cluster.high_availability.leader_election_service import (
    LeaderElectionService,
    Leadership,
    LeadershipLostError,
)
from headrace.core.clock import ManualClock
from headrace.core.config import Settings
from headrace.core.errors import ConfigurationError
from headrace.core.ids import JobId
from headrace.graph.job_graph import JobGraph
from testkit.kubernetes_api import kubernetes_api
from tests.integration.high_availability.zookeeper_server import zookeeper_server

pytestmark = [pytest.mark.integration, pytest.mark.slow]

LEASE_MS: Final = 60_000
Open = Callable[[], "Driver"]


class Driver:
    """What one driver has of the election, with a clock of its own that stands still."""

    def __init__(self, settings: Settings, folder: Path) -> None:
        self.coordination: Final[Coordination] = open_coordination(settings, random.Random(1))
        self.clock: Final = ManualClock(0)
        self.election: Final = LeaderElectionService(
            self.coordination.records, self.coordination.terms, self.clock, "default", "driver"
        )
        self.graphs: Final = JobGraphStore(
            str(folder / "jobs"),
            metadata_key(settings),
            random.Random(2),
            pointers=self.coordination.pointers,
        )

    def take_over(self) -> None:
        """See the leader, wait for its lease, and lead."""
        self.election.step()
        self.clock.advance_ms(LEASE_MS)
        self.election.step()
        assert self.election.epoch

    @property
    def term(self) -> Leadership:
        """The newest term."""
        term = self.election.leadership
        assert term is not None
        return term


@pytest.fixture(scope="module")
def quorum(tmp_path_factory: pytest.TempPathFactory) -> Generator[str]:
    with zookeeper_server(tmp_path_factory.mktemp("zookeeper") / "server") as server:
        yield server.address


@pytest.fixture(params=["zookeeper", "kubernetes", "file"])
def settings(request: pytest.FixtureRequest, tmp_path: Path) -> Generator[dict[str, str]]:
    common = {
        "high-availability.type": request.param,
        "high-availability.storageDir": str(tmp_path / "ha"),
        "high-availability.cluster-id": "default",
        "headrace.checkpoint.key-file": str(tmp_path / "key"),
    }
    if request.param == "zookeeper":
        yield common | {
            "high-availability.zookeeper.quorum": request.getfixturevalue("quorum"),
            "high-availability.zookeeper.path.root": f"/{tmp_path.name}",
        }
        return
    with kubernetes_api() as api:
        file = tmp_path / "kube-config"
        file.write_text(api.kube_config())
        yield common | {"kubernetes.config.file": str(file)}


@pytest.fixture
def open_driver(settings: dict[str, str], tmp_path: Path) -> Generator[Open]:
    drivers: list[Driver] = []

    def open_one() -> Driver:
        drivers.append(Driver(Settings(settings), tmp_path))
        return drivers[-1]

    yield open_one
    for one in drivers:
        one.coordination.close()


def unlost() -> None:
    """Stand in for the look of a leader that nobody has followed."""


def stored(number: int, submitted_ms: int = 0) -> StoredJobGraph:
    graph = JobGraph(JobId(bytes([number]) * 16), f"job {number}", (), (), {})
    return StoredJobGraph(graph, submitted_ms or number, epoch=1)


def test_one_leads_and_the_other_waits_for_its_lease(open_driver: Open) -> None:
    first, second = open_driver(), open_driver()
    first.election.step()
    first.election.validate()
    second.election.step()
    assert second.election.epoch == 0
    first.election.step()
    second.clock.advance_ms(LEASE_MS)
    second.election.step()
    assert second.election.epoch == 0, "the record has changed meanwhile"


def test_the_next_leader_has_the_next_epoch_and_the_one_before_is_told(open_driver: Open) -> None:
    first, second = open_driver(), open_driver()
    first.election.step()
    second.take_over()
    assert second.election.epoch == 2
    with pytest.raises(LeadershipLostError):
        first.term.confirm()
    second.election.step()
    second.term.confirm()


def test_a_renewal_of_an_earlier_leader_changes_nothing(open_driver: Open) -> None:
    first, second = open_driver(), open_driver()
    first.election.step()
    old = first.coordination.records.newest()
    assert old is not None
    second.take_over()
    before = second.coordination.records.newest()
    # A file is written, and nobody reads it any more; a service refuses.
    with contextlib.suppress(LeadershipLostError):
        first.coordination.records.renew(old)
    assert second.coordination.records.newest() == before
    assert second.coordination.records.newest_epoch() == 2


def test_of_two_that_take_the_same_epoch_one_gets_it(open_driver: Open) -> None:
    first, second, third = open_driver(), open_driver(), open_driver()
    first.election.step()
    for one in (second, third):
        one.election.step()
        one.clock.advance_ms(LEASE_MS)
        # Both have seen that nobody leads before either takes the epoch.
        one.coordination.records.newest()
    record = first.coordination.records.newest()
    assert record is not None
    taken = type(record)(epoch=2, holder="one of two")
    assert second.coordination.records.take(taken)
    assert not third.coordination.records.take(taken)


def test_a_lease_that_is_given_back_is_free_at_once(open_driver: Open) -> None:
    first, second = open_driver(), open_driver()
    first.election.await_leadership()
    first.election.announce("http://127.0.0.1:8081")
    first.election.close()
    second.election.step()
    assert second.election.epoch == 2


def test_jobs_are_those_whose_pointers_are_there(open_driver: Open, tmp_path: Path) -> None:
    driver = open_driver()
    driver.election.step()
    for number in (1, 2):
        driver.graphs.put(stored(number))
    driver.graphs.put(stored(2, submitted_ms=5))
    assert driver.graphs.recover(1, unlost) == [stored(1), stored(2, submitted_ms=5)]
    driver.graphs.remove(stored(1).graph.job_id, 1, 1)
    driver.graphs.remove(stored(3).graph.job_id, 1, 1)
    assert driver.graphs.recover(1, unlost) == [stored(2, submitted_ms=5)]
    (graph,) = (tmp_path / "jobs").rglob("graph")
    assert graph.parent.name == (b"\2" * 16).hex() + "-1"


def test_records_and_pointers_of_another_key_are_not_trusted(
    open_driver: Open, settings: dict[str, str], tmp_path: Path
) -> None:
    driver = open_driver()
    driver.election.step()
    driver.graphs.put(stored(1))
    settings["headrace.checkpoint.key-file"] = str(tmp_path / "another-key")
    stranger = open_driver()
    with pytest.raises(RecordNotTrustedError):
        stranger.coordination.records.newest()
    driver.election.step()
    store = JobGraphStore(
        str(tmp_path / "jobs"),
        metadata_key(Settings(settings)),
        random.Random(2),
        pointers=driver.coordination.pointers,
    )
    if driver.coordination.pointers is None:
        # No list names it yet. Whoever had the wrong key has not become the leader.
        [found] = store.recover(1, unlost)
        assert isinstance(found, UnreadableJobGraph)
    else:
        with pytest.raises(RecordNotTrustedError):
            store.recover(1, unlost)


@pytest.mark.parametrize("settings", ["zookeeper", "kubernetes"], indirect=True)
def test_pointers_of_an_earlier_leader_are_refused(open_driver: Open) -> None:
    first, second = open_driver(), open_driver()
    first.election.step()
    first.graphs.put(stored(1))
    second.take_over()
    assert second.graphs.recover(2, unlost) == [stored(1)]
    # It was frozen between its look and its write: only the service knows better.
    for write in (
        lambda: first.graphs.put(stored(2)),
        lambda: first.graphs.remove(stored(1).graph.job_id, 1, 1),
    ):
        with pytest.raises(LeadershipLostError):
            write()
    assert second.graphs.recover(2, unlost) == [stored(1)]


@pytest.mark.parametrize("settings", ["zookeeper", "kubernetes"], indirect=True)
def test_bytes_that_are_gone_while_their_pointer_is_there_stop_the_recovery(
    open_driver: Open, tmp_path: Path
) -> None:
    driver = open_driver()
    driver.election.step()
    driver.graphs.put(stored(1))
    (graph,) = (tmp_path / "jobs").rglob("graph")
    graph.unlink()
    with pytest.raises(RecordNotTrustedError, match="gone"):
        driver.graphs.recover(1, unlost)


@pytest.mark.parametrize("settings", ["zookeeper", "kubernetes"], indirect=True)
def test_bytes_without_a_pointer_are_no_job_and_are_deleted(
    open_driver: Open, tmp_path: Path
) -> None:
    driver = open_driver()
    driver.election.step()
    driver.graphs.put(stored(1))
    assert driver.coordination.pointers is not None
    driver.coordination.pointers.remove(1, stored(1).graph.job_id)
    assert driver.graphs.recover(2, unlost) == []
    assert list((tmp_path / "jobs").iterdir()) == []


@pytest.mark.parametrize("settings", ["zookeeper"], indirect=True)
def test_nodes_of_a_creator_are_closed_to_others(
    open_driver: Open, settings: dict[str, str]
) -> None:
    client = "high-availability.zookeeper.client."
    settings[f"{client}acl"] = "creator"
    with pytest.raises(ConfigurationError, match="authorization"):
        open_driver()
    settings[f"{client}authorization"] = "digest:headrace:secret"
    open_driver().election.step()
    assert open_driver().coordination.records.newest_epoch() == 1
    settings[f"{client}authorization"] = "digest:headrace:guessed"
    with pytest.raises(ConfigurationError, match="not allowed"):
        open_driver().coordination.records.newest()


@pytest.mark.parametrize("settings", ["zookeeper"], indirect=True)
def test_servers_that_are_not_there_are_named(open_driver: Open, settings: dict[str, str]) -> None:
    settings["high-availability.zookeeper.quorum"] = "127.0.0.1:1"
    settings["high-availability.zookeeper.client.connection-timeout"] = "100 ms"
    with pytest.raises(CheckpointStorageError, match=r"127\.0\.0\.1:1"):
        open_driver()
