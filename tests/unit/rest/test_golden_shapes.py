"""Every route has a golden shape: one that is added to the table without one fails here.

Routes that need programs, state or a real job are asserted by the tests that ask them. `test_contract` says what fields
mean.
"""

import contextlib
import itertools
import re
from collections.abc import Iterator
from typing import Any

import pytest
from msgspec import structs

from headrace.core.barriers import SnapshotKind
from headrace.gateways.checkpoint_statistics import CheckpointStatus, RestoredCheckpoint
from headrace.rest.rest_route import RestRoute
from headrace.rest.routes import ROUTES
from tests.architecture.floor_plan import ROOT
from tests.dashboard.fake_cluster import ANSWERS
from tests.dashboard.golden_answers import NotFoundError
from tests.dashboard.golden_jobs import JOBS, TASK_MANAGERS
from tests.unit.cli.jobs.answers import OF_EVERY_COMMAND
from tests.unit.rest.golden_shapes import (
    GOLDEN,
    assert_golden,
    asserted_routes,
    differences,
    is_like,
    is_route,
    shape,
)
from tests.unit.rest.sample_cluster import (
    COMPLETED,
    COUNTER,
    LOG_NAME,
    OPERATOR,
    RUNNING_JOB,
    SOURCE,
    START_MS,
    STATISTICS,
    TASK_MANAGER,
    checkpoint,
)
from tests.unit.rest.served_cluster import Answer, ServedCluster, served_cluster

TRIGGER = "ab" * 16
PARAMETERS = {
    "jobid": RUNNING_JOB.hex(),
    "applicationid": RUNNING_JOB.hex(),
    "vertexid": COUNTER.hex(),
    "operatorid": OPERATOR.operator_id.hex(),
    "taskmanagerid": str(TASK_MANAGER),
    "subtaskindex": "1",
    "attempt": "0",
    "checkpointid": "3",
    "datasetid": (b"d" * 16).hex(),
    "rescaleuuid": "1",
    "triggerid": TRIGGER,
    "filename": "jobmanager.log",
}
BODIES: dict[str, Any] = {
    "POST /jobs": b"a Java graph",
    "POST /jobs/{jobid}/checkpoints": {"triggerId": TRIGGER},
    "POST /jobs/{jobid}/savepoints": {"triggerId": TRIGGER, "target-directory": "/savepoints"},
    "POST /jobs/{jobid}/stop": {"triggerId": TRIGGER, "targetDirectory": "/savepoints"},
    "POST /savepoint-disposal": {"savepoint-path": "/savepoints/savepoint-1"},
    "PATCH /jobs/{jobid}/clientHeartbeat": {"expiredTimestamp": 1_795_000_000_000},
    "PUT /jobs/{jobid}/resource-requirements": {},
    "POST /jobmanager/profiler": {"mode": "LOCK", "duration": 60},
    "POST /taskmanagers/{taskmanagerid}/profiler": {"mode": "WALL", "duration": 60},
}
BEFORE = {
    "GET /datasets/delete/{triggerid}": "DELETE /datasets/{datasetid}",
    "GET /jobs/{jobid}/checkpoints/{triggerid}": "POST /jobs/{jobid}/checkpoints",
    "GET /jobs/{jobid}/savepoints/{triggerid}": "POST /jobs/{jobid}/savepoints",
    "GET /savepoint-disposal/{triggerid}": "POST /savepoint-disposal",
}
"""Operations that are asked for before their status is."""
OTHER_PARAMETERS = {
    "GET /jobs/{jobid}/vertices/{vertexid}/jm-operator-metrics": {"vertexid": SOURCE.hex()},
    "GET /jobs/{jobid}/vertices/{vertexid}/subtasks/{subtaskindex}/attempts/{attempt}/accumulators": {
        "attempt": "1"
    },
}
"""Examples of their own, where the usual ones have nothing to tell."""
SAVEPOINT = structs.replace(
    COMPLETED, checkpoint_id=4, kind=SnapshotKind.SAVEPOINT, savepoint_format="CANONICAL"
)
EVERY_KIND_OF_CHECKPOINT = structs.replace(
    STATISTICS,
    latest_savepoint=SAVEPOINT,
    restored=RestoredCheckpoint(1, START_MS, SnapshotKind.SAVEPOINT, "/savepoints/savepoint-1"),
    history=(checkpoint(5, CheckpointStatus.IN_PROGRESS), SAVEPOINT, *STATISTICS.history),
)
"""`test_contract` has the answer where there are no savepoints and nothing was restored."""
PROFILES = ("GET /jobmanager/profiler", "GET /taskmanagers/{taskmanagerid}/profiler")
FLAME_GRAPH = "GET /jobs/{jobid}/vertices/{vertexid}/flamegraph"


def name_of(route: RestRoute) -> str:
    return f"{route.method} {route.path}"


SERVED = [name_of(route) for route in ROUTES if not route.is_message]
ELSEWHERE = set[str]().union(*map(asserted_routes, (ROOT / "tests").rglob("test_*.py")))
"""Routes that other tests ask and assert."""


def answered(cluster: ServedCluster, name: str) -> Answer:
    """Ask the example of a route, and first for the operation that it is about."""
    parameters = PARAMETERS | OTHER_PARAMETERS.get(name, {})
    if name in BEFORE:
        begun = answered(cluster, BEFORE[name])
        parameters["triggerid"] = begun.json["request-id"]
    method, _, path = name.partition(" ")
    if path.startswith("/taskmanagers"):
        parameters["filename"] = LOG_NAME
    filled = re.sub(r"{(\w+)}", lambda found: parameters[found[1]], path)
    if name in BEFORE:
        return cluster.get_until(filled, lambda found: found["status"]["id"] == "COMPLETED")
    if name in PROFILES and not cluster.get(filled).json["profilingList"]:
        answered(cluster, f"POST {path}")
    if name == FLAME_GRAPH:
        return cluster.get_until(filled, lambda found: "data" in found)
    return cluster.ask(method, filled, BODIES.get(name))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedCluster]:
    logs = tmp_path_factory.mktemp("logs")
    for ending in ("log", "out"):
        (logs / f"jobmanager.{ending}").write_text("a line\n")
    with pytest.MonkeyPatch.context() as patch:
        home = tmp_path_factory.mktemp("home")
        settings = {"rest.profiling.enabled": "true"}
        with served_cluster(home, patch, settings, log_folder=logs) as one:
            one.dispatcher.statistics = EVERY_KIND_OF_CHECKPOINT
            yield one


def test_each_route_has_a_golden_shape_and_no_other_has() -> None:
    assert sorted(GOLDEN) == sorted(SERVED)


def test_other_tests_assert_routes_that_there_are_with_the_statuses_of_the_table() -> None:
    assert len(ELSEWHERE) >= 15
    statuses = {name_of(route): route.status for route in ROUTES}
    assert {name: GOLDEN[name]["status"] for name in ELSEWHERE} == {
        name: statuses[name] for name in ELSEWHERE
    }


@pytest.mark.parametrize("name", [name for name in GOLDEN if name not in ELSEWHERE])
def test_a_route_answers_its_golden_shape(cluster: ServedCluster, name: str) -> None:
    answer = answered(cluster, name)
    kind = answer.headers["content-type"]
    is_json = kind.startswith("application/json")
    assert_golden(name, answer.json if is_json else kind, answer.status)


@pytest.mark.parametrize(
    ("path", "begin"),
    [("/jobmanager/stdout", b"a line\n"), (f"/taskmanagers/{TASK_MANAGER}/stdout", b"said\n")],
)
def test_stdout_is_text_as_it_was_printed(cluster: ServedCluster, path: str, begin: bytes) -> None:
    answer = cluster.get(path)
    assert (answer.status, answer.body) == (200, begin)
    assert answer.headers["content-type"] == "text/plain; charset=UTF-8"


def test_a_shape_with_a_field_more_or_less_is_another_one() -> None:
    golden = {"jobs": [{"id": "text"}, {"id": "text", "end": "number"}]}
    assert is_like(shape({"jobs": [{"id": "a", "end": 1}]}), golden)
    assert not is_like(shape({"jobs": []}), golden)
    assert not is_like(shape({"jobs": [{"id": 1}]}), golden)
    assert not is_like(shape({"jobs": [{"id": "a"}]}), {"jobs": []})
    assert not is_like(shape({"jobs": [{"id": "a", "more": 1}]}), golden)
    assert not is_like(shape({}), golden)


EXAMPLES: dict[str, list[str]] = {name: [value] for name, value in PARAMETERS.items()} | {
    "jobid": [job.id for job in JOBS.values()],
    "vertexid": [vertex.id for job in JOBS.values() for vertex in job.vertices],
    "taskmanagerid": list(TASK_MANAGERS),
    "subtaskindex": ["0"],
    "attempt": ["0", "1", "2"],
    "checkpointid": ["70", "73", "74", "75"],
    "filename": ["jobmanager.log", "taskmanager.log"],
}
"""Ids of the cluster that tests of the dashboard look at."""


@pytest.mark.parametrize("name", ANSWERS)
def test_an_answer_that_the_dashboard_is_tested_with_is_of_the_golden_shape(name: str) -> None:
    found: list[Any] = []
    for parts in itertools.product(*(EXAMPLES[each] for each in re.findall(r"{(\w+)}", name))):
        with contextlib.suppress(NotFoundError):
            found.append(ANSWERS[name](parts, {"table": "keyed", "state": "customer"}))
    golden = GOLDEN[name]["answer"]
    assert found
    if isinstance(golden, str):
        assert golden.startswith("text/plain") and all(isinstance(each, str) for each in found)
    else:
        assert {other for each in found for other in differences(shape(each), golden)} == set()


def test_a_field_more_or_less_or_of_another_kind_is_told() -> None:
    golden = {"jobs": [{"id": "text", "end": "number"}], "settings": {"a": "text"}}
    found = {"jobs": [{"id": 1, "begin": 2}], "settings": {"b": "c"}}
    assert list(differences(shape(found), golden)) == [
        ".jobs[].begin is not known",
        ".jobs[].end is missing",
        '.jobs[].id is "number" and not "text"',
    ]
    empty = {"jobs": [], "settings": {}}
    assert list(differences(shape(empty), golden)) == []


def test_all_that_commands_are_answered_in_tests_are_routes() -> None:
    assert [line for line in OF_EVERY_COMMAND if not is_route(line)] == []
    assert not is_route("GET /jobs/ab/watermark")
    assert not is_route("GET /jobs/ab/vertices")
