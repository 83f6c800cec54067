"""Clients tie a job to themselves where the settings say so, and tell the cluster that they live until it has ended."""

import asyncio
from typing import cast

import pytest

from headrace.client.client_heartbeat import keep_alive, tied_to_client
from headrace.core.clock import ManualClock
from headrace.core.config import Settings
from headrace.core.errors import ConfigurationError
from headrace.core.ids import JobId
from headrace.core.lifecycle import JobStatus
from headrace.gateways.dispatcher import DispatcherGateway
from headrace.gateways.errors import UnknownJobError
from headrace.gateways.messages import Acknowledge
from headrace.graph.job_graph import JobGraph
from headrace.rest.client_errors import RestUnreachableError

JOB = JobId(b"j" * 16)
GRAPH = JobGraph(JOB, "job", (), (), {})
TIED = {"execution.shutdown-on-attached-exit": "true"}


def test_an_attached_job_is_tied_only_where_the_settings_say_so() -> None:
    assert tied_to_client(GRAPH, Settings({})) is GRAPH
    detached = {**TIED, "execution.attached": "false"}
    assert tied_to_client(GRAPH, Settings(detached)) is GRAPH
    assert tied_to_client(GRAPH, Settings(TIED)).client_heartbeat_timeout_ms == 180_000


def test_an_interval_that_is_no_shorter_than_the_timeout_is_refused() -> None:
    settings = {**TIED, "client.heartbeat.interval": "3 min"}
    with pytest.raises(ConfigurationError, match=r"below client\.heartbeat\.timeout"):
        tied_to_client(GRAPH, Settings(settings))


class Dispatcher:
    """Gives the statuses of a job in turn, None for an answer that does not come."""

    def __init__(self, *statuses: JobStatus | Exception) -> None:
        self._statuses = list(statuses)
        self.heard: list[int] = []

    async def request_job_status(self, job_id: JobId) -> JobStatus:
        status = self._statuses.pop(0)
        if isinstance(status, Exception):
            raise status
        return status

    async def report_client_heartbeat(self, job_id: JobId, expired_ms: int) -> Acknowledge:
        self.heard.append(expired_ms)
        return Acknowledge()


def kept_alive(dispatcher: Dispatcher) -> list[int]:
    clock = ManualClock()
    gateway = cast("DispatcherGateway", dispatcher)
    asyncio.run(keep_alive(JOB, gateway, 0.0, 500, clock))
    return [heard - clock.now_ms() for heard in dispatcher.heard]


def test_heartbeats_are_sent_until_the_job_has_ended() -> None:
    assert (
        kept_alive(Dispatcher(JobStatus.RUNNING, JobStatus.RUNNING, JobStatus.FINISHED))
        == [500] * 2
    )
    assert kept_alive(Dispatcher(JobStatus.RUNNING, UnknownJobError(str(JOB)))) == [500]


def test_a_cluster_that_does_not_answer_is_asked_again() -> None:
    silence = RestUnreachableError("http://host:1", "nobody listens there")
    assert kept_alive(Dispatcher(silence, JobStatus.RUNNING, JobStatus.CANCELED)) == [500]
