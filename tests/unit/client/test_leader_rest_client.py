"""A client that looks the leader of a cluster up, and goes on with the next one when that is gone."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from headrace.client.leader_rest_client import LeaderRestClient
from headrace.client.remote_executor import RemoteExecutor
from headrace.client.rest_cluster_client import RestClusterClient
from headrace.cluster.high_availability.coordination import open_coordination
from headrace.cluster.high_availability.leader_retrieval_service import open_leader_retrieval
from headrace.cluster.high_availability.lease import LeaderRecord
from headrace.core.config import Settings
from headrace.core.ids import JobId
from headrace.core.lifecycle import JobStatus
from headrace.core.randomness import system_random
from headrace.gateways.dispatcher import JobResult
from headrace.rest.client_errors import RestUnreachableError
from headrace.rest.client_protocol import MESSAGE
from tests.unit.rest.fake_cluster import JOB, Answer, FakeCluster, fake_cluster

RUNNING, SUSPENDED, FINISHED = ({"status": one} for one in ("RUNNING", "SUSPENDED", "FINISHED"))
BROKEN = Answer(200, b"{", {"Content-Length": "100"})
RESULT = JobResult(JobId.from_hex(JOB), "job", JobStatus.FINISHED, 5, {})


class Election:
    """Leaders of one cluster, as their records in a folder say."""

    def __init__(self, folder: Path) -> None:
        self.settings = {
            "high-availability.type": "file",
            "high-availability.storageDir": str(folder / "ha"),
            "headrace.checkpoint.key-file": str(folder / "key"),
            "rest.retry.delay": "0 s",
            "rest.retry.max-attempts": "5",
        }
        self._records = open_coordination(Settings(self.settings), system_random()).records

    def leads(self, epoch: int, address: str, *, is_released: bool = False) -> None:
        record = LeaderRecord(epoch, "a driver", 0, address, is_released)
        if self._records.newest_epoch() < epoch:
            self._records.take(record)
        self._records.renew(record)


@pytest.fixture
def election(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Election:
    monkeypatch.setenv("HEADRACE_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("HEADRACE_TOKEN", raising=False)
    return Election(tmp_path)


@pytest.fixture
def two() -> Iterator[tuple[FakeCluster, FakeCluster]]:
    with fake_cluster({}, token="") as first, fake_cluster({}, token="") as second:
        yield first, second


def client_of(election: Election, wait: Callable[[float], Any]) -> LeaderRestClient:
    settings = Settings(election.settings)
    return LeaderRestClient(open_leader_retrieval(settings), settings, print, wait)


def test_the_leader_is_asked(election: Election, two: tuple[FakeCluster, FakeCluster]) -> None:
    first, second = two
    second.answers["GET /overview"] = {"slots-total": 3}
    election.leads(1, first.address)
    election.leads(2, second.address)
    client = client_of(election, lambda _: None)
    assert client.address == second.address
    answer = client.exchange("GET", "/overview", content_type=MESSAGE)
    assert msgspec.json.decode(answer) == {"slots-total": 3}


def test_a_request_that_nobody_takes_waits_for_the_next_leader(election: Election) -> None:
    waits: list[float] = []
    with fake_cluster({}, token="") as gone:
        address = gone.address
    election.leads(1, address)
    with fake_cluster({"GET /overview": {}}, token="") as second:

        def wait(pause_s: float) -> None:
            waits.append(pause_s)
            # It leads before it serves anybody, and says where it does afterwards.
            election.leads(2, "" if len(waits) == 1 else second.address)

        client = client_of(election, wait)
        assert client.exchange("GET", "/overview", content_type=MESSAGE) == b"{}"
    assert len(waits) == 2


def test_a_request_that_may_have_arrived_is_not_sent_to_the_next_leader(
    election: Election, two: tuple[FakeCluster, FakeCluster]
) -> None:
    first, second = two
    election.leads(1, first.address)

    def break_off(_: object) -> Answer:
        election.leads(2, second.address)
        return BROKEN

    first.answers["POST /jobs"] = break_off
    client = client_of(election, lambda _: None)
    with pytest.raises(RestUnreachableError, match="ended early"):
        client.exchange("POST", "/jobs", b"{}", content_type=MESSAGE)
    assert second.requests == []
    assert client.address == second.address


def test_where_nobody_leads_it_gives_up_after_as_many_attempts_as_are_set(
    election: Election,
) -> None:
    waits: list[float] = []
    client = client_of(election, waits.append)
    election.leads(1, "http://127.0.0.1:1", is_released=True)
    with pytest.raises(
        RestUnreachableError, match="after 5 attempts: no leader of the cluster is known"
    ):
        client.exchange("GET", "/overview", content_type=MESSAGE)
    assert len(waits) == 4


def test_the_wait_for_a_job_goes_on_under_the_next_leader(
    election: Election, two: tuple[FakeCluster, FakeCluster]
) -> None:
    first, second = two
    election.leads(1, first.address)
    status = f"GET /jobs/{JOB}/status"

    def die(_: object) -> Answer:
        election.leads(2, second.address)
        return BROKEN

    first.answers[status] = (RUNNING, RUNNING, SUSPENDED, die)
    second.answers[status] = (RUNNING, FINISHED)
    second.answers[f"GET /jobs/{JOB}/execution-result"] = Answer(
        200, msgspec.msgpack.encode(RESULT), {"Content-Type": MESSAGE}
    )
    with RestClusterClient.of_leader(Settings(election.settings)) as cluster:
        assert cluster.address == first.address
        result = cluster.get_job_client(JOB).get_job_execution_result().result(60)
        assert result.get_net_runtime() == RESULT.net_runtime_ms
        assert cluster.address == second.address


def test_remote_programs_find_the_leader(
    election: Election, two: tuple[FakeCluster, FakeCluster]
) -> None:
    first, second = two
    second.answers["GET /jobmanager/config"] = []
    second.answers["GET /overview"] = {"slots-available": 7}
    election.leads(1, first.address)
    election.leads(2, second.address)
    executor = RemoteExecutor(Settings(election.settings))
    assert executor.default_parallelism() == 7
    executor.close()
    assert first.requests == []


def test_an_address_that_is_named_is_asked_whoever_leads(
    election: Election, two: tuple[FakeCluster, FakeCluster]
) -> None:
    first, second = two
    first.answers["GET /jobmanager/config"] = [{"key": "parallelism.default", "value": "2"}]
    election.leads(1, second.address)
    executor = RemoteExecutor(Settings(election.settings | {"rest.address": first.address}))
    assert executor.default_parallelism() == 2
    executor.close()
