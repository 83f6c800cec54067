"""PrometheusPushGatewayReporter: what it sends where, and that it cleans up."""

from collections.abc import Iterator

import pytest

from headrace.core.errors import ConfigurationError
from headrace.metrics.reporters.prometheus_push_gateway import PrometheusPushGatewayReporter
from tests.unit.metrics.reporters.local_server import LocalServer, local_server
from tests.unit.metrics.reporters.reports import config, report, task_reading


@pytest.fixture
def gateway() -> Iterator[LocalServer]:
    with local_server() as server:
        yield server


def reporter(gateway: LocalServer, **values: str) -> PrometheusPushGatewayReporter:
    return PrometheusPushGatewayReporter(config({"hostUrl": gateway.url, **values}))


def test_a_report_replaces_the_group_of_the_process(gateway: LocalServer) -> None:
    pushing = reporter(
        gateway, jobName="orders", randomJobNameSuffix="false", groupingKey="stage=test; zone=1"
    )
    pushing.report(
        report(task_reading({"numRecordsIn": 3}), ended=[task_reading({"numRecordsOut": 4})])
    )
    (request,) = gateway.requests
    assert (request.method, request.path) == ("PUT", "/metrics/job/orders/stage/test/zone/1")
    lines = request.body.decode().splitlines()
    assert [line.split("{")[0] for line in lines if not line.startswith("#")] == [
        "flink_taskmanager_job_task_numRecordsOut",
        "flink_taskmanager_job_task_numRecordsIn",
    ]


def test_processes_push_under_names_of_their_own(gateway: LocalServer) -> None:
    for _ in range(2):
        reporter(gateway, jobName="orders").report(report())
    paths = {request.path for request in gateway.requests}
    assert len(paths) == 2 and all(path.startswith("/metrics/job/orders") for path in paths)


@pytest.mark.parametrize(("deletes", "methods"), [("true", ["DELETE"]), ("false", [])])
def test_what_was_pushed_is_deleted_at_the_end(
    gateway: LocalServer, deletes: str, methods: list[str]
) -> None:
    reporter(gateway, deleteOnShutdown=deletes).close()
    assert [request.method for request in gateway.requests] == methods


def test_a_refusal_is_an_error(gateway: LocalServer) -> None:
    gateway.status = 500
    with pytest.raises(OSError, match="500"):
        reporter(gateway).report(report())


@pytest.mark.parametrize(
    ("values", "key"),
    [({}, "hostUrl"), ({"hostUrl": "http://h", "groupingKey": "nothing"}, "groupingKey")],
)
def test_a_setting_that_cannot_be_is_named(values: dict[str, str], key: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"metrics\.reporter\.mine\.{key}"):
        PrometheusPushGatewayReporter(config(values))
