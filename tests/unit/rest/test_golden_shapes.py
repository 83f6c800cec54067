"""Every route has a golden shape: one that is added to the table without one fails here.

`golden_shapes.json` has, by method and path, the status and the shape of the answer to the example that is asked here:
objects with all their fields, arrays with each shape that an element may have, `number`, `text`, `bool` or `null`.
Routes that need more than the sample cluster name the test that asks them. `test_contract` says what fields mean.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.rest.rest_route import RestRoute
from headrace.rest.routes import ROUTES
from tests.architecture.floor_plan import ROOT
from tests.unit.rest.sample_cluster import COUNTER, LOG_NAME, OPERATOR, RUNNING_JOB, TASK_MANAGER
from tests.unit.rest.served_cluster import Answer, ServedCluster, served_cluster

GOLDEN: dict[str, Any] = json.loads((Path(__file__).parent / "golden_shapes.json").read_text())
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
_STATE = "/jobs/{jobid}/state"
_PROGRAMS = "tests/integration/rest/test_uploaded_programs.py"
_STATES = "tests/unit/rest/state/test_state_routes.py"
ELSEWHERE = {
    "POST /session": ("tests/unit/rest/test_server.py", 'ask("POST", "/session", {"token":'),
    "PUT /jobs/{jobid}/blobs/{digest}": (
        "tests/unit/client/test_rest_dispatcher.py",
        "cluster.blob_server.blobs[BlobKey.of(content)] == content",
    ),
    f"GET {_STATE}": (_STATES, "get(STATE)"),
    f"GET {_STATE}/operators/{{operatorid}}": (_STATES, "get(OF_COUNT)"),
    f"GET {_STATE}/operators/{{operatorid}}/rows": (_STATES, 'get(f"{OF_COUNT}/rows?'),
    f"POST {_STATE}/edits": (_STATES, 'ask("POST", f"{STATE}/edits", body)'),
    f"GET {_STATE}/edits/{{triggerid}}": (_STATES, "{STATE}/edits/{asked.json['request-id']}"),
    "GET /jars": (_PROGRAMS, 'get("/jars")'),
    "POST /jars/upload": (_PROGRAMS, 'exchange("POST", "/jars/upload", body'),
    "DELETE /jars/{jarid}": (_PROGRAMS, 'exchange("DELETE", f"/jars/{jar}")'),
    "GET /jars/{jarid}/plan": (_PROGRAMS, 'get(f"/jars/{jar}/plan?'),
    "POST /jars/{jarid}/plan": (_PROGRAMS, 'post(f"/jars/{jar}/plan", {'),
    "POST /jars/{jarid}/run": (_PROGRAMS, 'post(f"/jars/{jar}/run", {'),
    "POST /jars/{jarid}/run-application": (_PROGRAMS, 'post(f"/jars/{jar}/run-application", body)'),
}
"""Routes that need programs or state, the file of the tests that ask them, and the call, or its effect, in it."""


def name_of(route: RestRoute) -> str:
    return f"{route.method} {route.path}"


SERVED = [name_of(route) for route in ROUTES if not route.is_message]


def shape(value: Any) -> Any:
    """Return an answer with kinds in the place of values."""
    match value:
        case dict():
            fields: dict[str, Any] = value
            return {key: shape(each) for key, each in fields.items()}
        case list():
            elements: list[Any] = value
            shapes: list[Any] = []
            for each in map(shape, elements):
                if each not in shapes:
                    shapes.append(each)
            return shapes
        case bool():
            return "bool"
        case int() | float() | "NaN":
            return "number"
        case None:
            return "null"
        case _:
            return "text"


def is_like(found: Any, golden: Any) -> bool:
    """Return whether a shape is the golden one; an array may lack elements, and have them in any order."""
    if isinstance(found, list) and isinstance(golden, list):
        arrays: list[Any] = found
        return all(any(is_like(each, one) for one in golden) for each in arrays)  # type: ignore[reportUnknownVariableType]
    if isinstance(found, dict) and isinstance(golden, dict):
        fields: dict[str, Any] = found
        return fields.keys() == golden.keys() and all(  # type: ignore[reportUnknownMemberType]
            is_like(each, golden[key]) for key, each in fields.items()
        )
    return found == golden


def answered(cluster: ServedCluster, name: str) -> Answer:
    """Ask the example of a route, and first for the operation that it is about."""
    parameters = dict(PARAMETERS)
    if name in BEFORE:
        begun = answered(cluster, BEFORE[name])
        parameters["triggerid"] = begun.json["request-id"]
    method, _, path = name.partition(" ")
    if path.startswith("/taskmanagers"):
        parameters["filename"] = LOG_NAME
    filled = re.sub(r"{(\w+)}", lambda found: parameters[found[1]], path)
    if name in BEFORE:
        return cluster.get_until(filled, lambda found: found["status"]["id"] == "COMPLETED")
    return cluster.ask(method, filled, BODIES.get(name))


def content_of(answer: Answer) -> Any:
    if answer.headers["content-type"].startswith("application/json"):
        return shape(answer.json)
    return answer.headers["content-type"]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedCluster]:
    logs = tmp_path_factory.mktemp("logs")
    for ending in ("log", "out"):
        (logs / f"jobmanager.{ending}").write_text("a line\n")
    with pytest.MonkeyPatch.context() as patch:
        home = tmp_path_factory.mktemp("home")
        settings = {"rest.profiling.enabled": "true"}
        with served_cluster(home, patch, settings, log_folder=logs) as one:
            yield one


def test_each_route_has_a_golden_shape_or_a_test_elsewhere_and_no_other_has() -> None:
    assert sorted([*GOLDEN, *ELSEWHERE]) == sorted(SERVED)


@pytest.mark.parametrize("name", GOLDEN)
def test_a_route_answers_its_golden_shape(cluster: ServedCluster, name: str) -> None:
    answer = answered(cluster, name)
    golden = GOLDEN[name]
    assert (answer.status, is_like(content_of(answer), golden["answer"])) == (
        golden["status"],
        True,
    ), json.dumps(content_of(answer))


@pytest.mark.parametrize("name", ELSEWHERE)
def test_the_tests_elsewhere_ask_the_route(name: str) -> None:
    file, call = ELSEWHERE[name]
    assert call in (ROOT / file).read_text()


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
    assert is_like(shape({"jobs": []}), golden)
    assert not is_like(shape({"jobs": [{"id": 1}]}), golden)
    assert not is_like(shape({"jobs": [{"id": "a", "more": 1}]}), golden)
    assert not is_like(shape({}), golden)
