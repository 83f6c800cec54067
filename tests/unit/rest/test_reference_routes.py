"""The table of routes holds every route of Flink 2.3, and says which ones are Headrace's own."""

import re

import pytest

from headrace.rest.routes import ROUTES
from tests.unit.rest.sample_cluster import RUNNING_JOB, UNKNOWN_JOB
from tests.unit.rest.served_cluster import ServedCluster

# Each line: a method, and paths with `*` in the place of each parameter.
SERVED = """
GET /config /overview /jobmanager/config /jobmanager/environment /jobmanager/metrics /jobmanager/logs
GET /jobmanager/logs/* /jobmanager/log /jobmanager/stdout /jobmanager/thread-dump /datasets /datasets/delete/*
GET /jobs /jobs/overview /jobs/metrics /jobs/* /jobs/*/yarn-cancel /jobs/*/status /jobs/*/execution-result
GET /jobs/*/plan /jobs/*/config /jobs/*/exceptions /jobs/*/accumulators /jobs/*/metrics /jobs/*/jobmanager/config
GET /jobs/*/jobmanager/environment /jobs/*/jobmanager/log-url /jobs/*/taskmanagers/*/log-url
GET /applications/overview /applications/* /applications/*/exceptions /applications/*/jobmanager/config
GET /jobs/*/vertices/* /jobs/*/vertices/*/subtasks/* /jobs/*/vertices/*/subtasks/*/attempts/*
GET /jobs/*/vertices/*/subtasktimes /jobs/*/vertices/*/taskmanagers /jobs/*/vertices/*/backpressure
GET /jobs/*/vertices/*/watermarks /jobs/*/vertices/*/metrics /jobs/*/vertices/*/subtasks/metrics
GET /jobs/*/vertices/*/subtasks/*/metrics /jobs/*/vertices/*/jm-operator-metrics /jobs/*/vertices/*/flamegraph
GET /jobs/*/vertices/*/accumulators /jobs/*/vertices/*/subtasks/accumulators
GET /jobs/*/vertices/*/subtasks/*/attempts/*/accumulators
GET /jobs/*/checkpoints /jobs/*/checkpoints/config /jobs/*/checkpoints/details/*
GET /jobs/*/checkpoints/details/*/subtasks/* /jobs/*/checkpoints/* /jobs/*/savepoints/* /savepoint-disposal/*
GET /taskmanagers /taskmanagers/* /taskmanagers/*/metrics /taskmanagers/metrics /taskmanagers/*/logs
GET /taskmanagers/*/logs/* /taskmanagers/*/log /taskmanagers/*/stdout /taskmanagers/*/thread-dump
GET /jars /jars/*/plan
GET /jobmanager/profiler /jobmanager/profiler/* /taskmanagers/*/profiler /taskmanagers/*/profiler/*
POST /jobmanager/profiler /taskmanagers/*/profiler
POST /jobs/*/checkpoints /jobs/*/savepoints /jobs/*/stop /savepoint-disposal /applications/*/cancel
POST /jars/upload /jars/*/run /jars/*/plan /jars/*/run-application
PATCH /jobs/* /jobs/*/clientHeartbeat
DELETE /cluster /datasets/* /jars/*
"""
REFUSED = """
POST /jobs
GET /jobs/*/rescaling/* /jobs/*/resource-requirements
GET /jobs/*/rescales/overview /jobs/*/rescales/history /jobs/*/rescales/details/* /jobs/*/rescales/config
GET /jobs/*/rescales/summary
PATCH /jobs/*/rescaling
PUT /jobs/*/resource-requirements
"""
OWN = """
POST /session /jobs/*/state/edits
DELETE /session
PUT /jobs/*/blobs/*
GET /jobs/*/metrics-history /jobs/*/watermarks /jobs/*/state /jobs/*/state/operators/* /jobs/*/state/operators/*/rows
GET /jobs/*/state/edits/*
"""
JOB = f"/jobs/{RUNNING_JOB.hex()}"


def places(table: str) -> set[tuple[str, str]]:
    return {
        (method, path)
        for method, *paths in map(str.split, table.strip().splitlines())
        for path in paths
    }


def served() -> dict[tuple[str, str], bool]:
    """Places of the routes that answer JSON, and whether each refuses whatever it is asked."""
    return {
        (route.method, re.sub(r"{\w+}", "*", route.path)): route.handler.__module__.endswith(
            ".unsupported"
        )
        for route in ROUTES
        if not route.is_message
    }


def test_every_route_of_flink_is_there() -> None:
    assert (places(SERVED) | places(REFUSED)) - served().keys() == set()


def test_those_that_are_refused_are_the_ones_that_mean_nothing_here() -> None:
    assert {place for place, is_refused in served().items() if is_refused} == places(REFUSED)


def test_every_other_route_is_known_as_one_of_our_own() -> None:
    assert served().keys() - places(SERVED) - places(REFUSED) == places(OWN)


@pytest.mark.parametrize("part", ["overview", "summary", "history", "details/1", "config"])
def test_a_job_has_no_history_of_rescales(cluster: ServedCluster, part: str) -> None:
    answer = cluster.get(f"{JOB}/rescales/{part}")
    assert (answer.status, "never changes its parallelism" in answer.errors) == (404, True)


def test_a_client_may_say_that_it_waits(cluster: ServedCluster) -> None:
    path = f"{JOB}/clientHeartbeat"
    answer = cluster.ask("PATCH", path, {"expiredTimestamp": 1_795_000_000_000})
    assert (answer.status, answer.json) == (202, {})
    assert cluster.ask("PATCH", path, {"expiredTimestamp": "soon"}).status == 400


def test_pages_with_logs_are_named(cluster: ServedCluster) -> None:
    page = f"{cluster.server.address}/#"
    assert cluster.get(f"{JOB}/jobmanager/log-url").json == {"url": f"{page}/job-manager/logs"}
    found = cluster.get(f"{JOB}/taskmanagers/host:1-2/log-url").json
    assert found == {"url": f"{page}/task-manager/host%3A1-2/logs"}
    assert cluster.get(f"/v1{JOB}/jobmanager/log-url").json["url"].startswith(page)
    unknown = f"/jobs/{UNKNOWN_JOB.hex()}/jobmanager/log-url"
    assert cluster.get(unknown).status == 404
