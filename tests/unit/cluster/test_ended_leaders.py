"""A request whose endpoint ends while it is asked: REST says so with 503, and answers the next one where it can.

The cluster is a real one, with all its endpoints.
"""

import asyncio
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Final

import pytest

from headrace.cluster.cluster import Cluster
from headrace.cluster.dispatcher.dispatcher import Dispatcher
from headrace.cluster.minicluster import MiniCluster
from headrace.cluster.resource_manager.resource_manager import ResourceManager
from headrace.core.clock import SystemClock
from headrace.core.config import Settings
from headrace.gateways.errors import NotLeadingError
from headrace.rest.client import RestClient
from headrace.rest.client_errors import RestRefusedError
from headrace.rest.client_protocol import MESSAGE
from headrace.rest.cluster_view import ControlPlane
from headrace.rest.home.connections import find_connection
from headrace.rest.rest_server import RestServer
from headrace.rpc.endpoint import RpcEndpoint
from headrace.rpc.proxies import refuse
from testkit.waiting import wait_until

WAIT_S: Final = 20
LISTS: Final = {
    "list_jobs": (Dispatcher, "/jobs/overview", {"jobs": []}),
    "request_resource_overview": (ResourceManager, "/taskmanagers", {"taskmanagers": []}),
}
"""Questions with the endpoints that answer them, their routes, and the answers while there is nothing."""


class AskedCluster:
    """A cluster whose first answer to one question never comes."""

    def __init__(self, question: str, patch: pytest.MonkeyPatch, home: Path) -> None:
        patch.setenv("HEADRACE_HOME", str(home))
        self.asked_count = 0
        self.kind, self.path, self.empty = LISTS[question]
        answer = getattr(self.kind, question)

        async def wait_first(endpoint: RpcEndpoint) -> object:
            self.asked_count += 1
            if self.asked_count == 1:
                await asyncio.Future[None]()
            return await answer(endpoint)

        patch.setattr(self.kind, question, wait_first)
        self._mini: Final = MiniCluster()
        self._mini.start()
        handle = self.handle = self._mini.handle
        self.cluster: Final[Cluster] = handle._cluster  # pyright: ignore[reportPrivateUsage]
        control = ControlPlane(handle.dispatcher, handle.resource_manager, handle.loop)
        settings = Settings({"rest.port": "0", "rest.retry.max-attempts": "1"})
        self._server: Final = RestServer(control, settings, SystemClock(), name="asked")
        self._server.start()
        connection = find_connection(self._server.address, print)
        assert connection is not None
        self.client: Final = RestClient.of(connection, settings=settings)
        self._pool: Final = ThreadPoolExecutor(1)

    def begin(self, *, is_message: bool = False) -> Future[object]:
        """Ask, and return what is answered, once the endpoint has the question."""
        if is_message:
            asked: Future[object] = self._pool.submit(self.client.exchange, "GET", self.path)
        else:
            asked = self._pool.submit(self.client.get, self.path)
        wait_until(lambda: self.asked_count == 1, WAIT_S, "the question")
        return asked

    @property
    def leader(self) -> RpcEndpoint:
        """The endpoint that answers."""
        cluster = self.cluster
        return cluster.dispatcher if self.kind is Dispatcher else cluster.resource_manager

    def end(self, endpoint: RpcEndpoint) -> None:
        async def end() -> None:
            await asyncio.wait([endpoint.close_async()])

        self.handle.call(end(), WAIT_S)

    def close(self) -> None:
        self._server.close()
        self._mini.close()
        self._pool.shutdown()


@pytest.fixture
def asked(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[AskedCluster]:
    cluster = AskedCluster(request.param, monkeypatch, tmp_path)
    yield cluster
    cluster.close()


@pytest.mark.parametrize("asked", ["list_jobs"], indirect=True)
def test_who_leads_is_told_to_those_who_had_asked_before(asked: AskedCluster) -> None:
    answer = asked.begin()
    refuse(asked.handle.dispatcher, lambda: NotLeadingError("process 7 leads it at http://h:1"))
    asked.end(asked.leader)
    with pytest.raises(RestRefusedError, match="process 7 leads it at http://h:1") as told:
        answer.result(WAIT_S)
    assert told.value.status == 503


@pytest.mark.parametrize("asked", LISTS, indirect=True)
@pytest.mark.parametrize("is_message", [False, True], ids=["json", MESSAGE])
def test_a_leader_that_is_followed_while_it_is_asked_is_unavailable_once(
    asked: AskedCluster, is_message: bool
) -> None:
    answer = asked.begin(is_message=is_message)
    asked.end(asked.leader)
    with pytest.raises(RestRefusedError, match=f"its {asked.kind.__name__} ended") as told:
        answer.result(WAIT_S)
    assert told.value.status == 503
    assert asked.client.get(asked.path) == asked.empty
