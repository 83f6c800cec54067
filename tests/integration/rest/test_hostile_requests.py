"""Whatever a request holds, the endpoint of a cluster that really runs answers it, and its job goes on."""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.rest.client import RestClient
from headrace.rest.client_protocol import MESSAGE
from headrace.rest.routes import ROUTES
from headrace.testing.minicluster_executor import MiniClusterExecutor
from tests.integration.rest.counting_program import (
    SETTINGS,
    Program,
    await_running,
    completed,
    vertices,
)
from tests.unit.graph.graphs import job, line
from tests.unit.rest.hostile_requests import (
    BODIES,
    NAMES,
    VALUES,
    filled,
    logged_errors,
)
from tests.unit.rest.openapi_answers import DocumentedAnswers
from tests.unit.rest.openapi_requests import operations_of, requests_of
from tests.unit.rest.served_cluster import Answer

# It ends what the other requests need.
LEFT_OUT = {("DELETE", "/cluster")}
DRAWN_ROUTES = st.sampled_from([one for one in ROUTES if (one.method, one.path) not in LEFT_OUT])
ENDS_A_JOB = {("PATCH", "/jobs/{jobid}"), ("POST", "/jobs/{jobid}/stop")}
ENDING = ("yarn-cancel", "/cancel")
IS_NOT_THERE = re.compile(
    r"\{(triggerid|filename|operatorid|jarid)\}|/profiler|/rescales/|/resource-requirements"
)
"""What this job and cluster have none of, so that the answer is an error."""
BOUNDED = settings(
    max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow], database=None
)
GRAPH = msgspec.msgpack.encode(job(line()))


class RunningCluster:
    """A MiniCluster with a job, asked over its endpoint."""

    def __init__(self, address: str, program: Program) -> None:
        self.rest = RestClient(address, "")
        self.program = program
        self._authority = address.partition("://")[2]
        found = vertices(self.rest, program.job)
        manager = self.rest.get("/taskmanagers")["taskmanagers"][0]["id"]
        known = [
            program.job.removeprefix("/jobs/"),
            *(one["id"] for one in found),
            manager,
            "0",
            "1",
        ]
        self.values = st.sampled_from(known) | VALUES
        page = self.rest.get("/openapi.json")
        self.operations = operations_of(page)
        self._documented = DocumentedAnswers(page)
        trigger = self.rest.post(f"{program.job}/checkpoints", {})["request-id"]
        done = completed(self.rest, f"{program.job}/checkpoints/{trigger}")
        self.checkpoint_id: int = done["checkpointId"]
        self.known = {
            "jobid": st.just(known[0]),
            "applicationid": st.just(known[0]),
            "vertexid": st.sampled_from([one["id"] for one in found]),
            "taskmanagerid": st.just(manager),
            "subtaskindex": st.sampled_from(["0", "1"]),
            "attempt": st.just("0"),
            "agg": st.sampled_from(["min", "max,skew"]),
        }

    def ask(self, method: str, path: str, body: bytes | None, headers: dict[str, str]) -> Answer:
        connection = HTTPConnection(self._authority, timeout=30)
        try:
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            found = {name.lower(): value for name, value in response.getheaders()}
            return Answer(response.status, response.read(), found)
        finally:
            connection.close()

    def check(self, method: str, path: str, answer: Answer) -> None:
        """Assert that a route, named by its path in the table, answered as the page says, and that the job runs."""
        self._documented.check(method, path, answer)
        assert self.rest.get(f"{self.program.job}/status")["status"] == "RUNNING"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    folder: Path = tmp_path_factory.mktemp("job")
    own = SETTINGS | {
        "rest.authentication": "none",
        "web.submit.enable": "true",
        # A program that a request starts is ended before it does anything.
        "web.timeout": "1 ms",
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HEADRACE_HOME", str(tmp_path_factory.mktemp("home")))
        with MiniClusterExecutor(slot_count=4, settings=own) as executor:
            program = Program("asked by strangers", folder)
            rest = RestClient(executor.rest_address, "")
            await_running(rest, program.job)
            yield RunningCluster(executor.rest_address, program)
            rest.patch(program.job, mode="cancel")


def test_each_answer_about_the_job_is_as_its_page_describes_it(cluster: RunningCluster) -> None:
    job = cluster.program.job
    known = {
        "jobid": job.removeprefix("/jobs/"),
        "applicationid": job.removeprefix("/jobs/"),
        "vertexid": vertices(cluster.rest, job)[1]["id"],
        "taskmanagerid": cluster.rest.get("/taskmanagers")["taskmanagers"][0]["id"],
        "subtaskindex": "1",
        "attempt": "0",
        "checkpointid": str(cluster.checkpoint_id),
    }
    answered: set[str] = set()
    for name, operation in cluster.operations.items():
        if operation.method == "GET" and not name.endswith(ENDING):
            path = re.sub(r"\{(\w+)\}", lambda found: known.get(found[1], "0"), operation.path)
            answer = cluster.ask("GET", path, None, {})
            cluster.check("GET", operation.path, answer)
            assert (answer.status == 200) != bool(IS_NOT_THERE.search(name)), (name, answer)
            answered |= {name} if answer.status == 200 else set[str]()
    assert len(answered) >= 55


@BOUNDED
@given(data=st.data())
def test_no_request_fails_inside_or_stops_the_job(
    cluster: RunningCluster, data: st.DataObject
) -> None:
    route = data.draw(DRAWN_ROUTES)
    ends_a_job = (route.method, route.path) in ENDS_A_JOB or route.path.endswith(ENDING)
    values = VALUES if ends_a_job else cluster.values
    path = filled(route, data.draw(st.lists(values, min_size=5, max_size=5)))
    query = data.draw(st.lists(st.tuples(NAMES, cluster.values), max_size=3))
    if query:
        path += "?" + "&".join(f"{quote_plus(name)}={quote_plus(value)}" for name, value in query)
    body = None if route.method == "GET" else data.draw(BODIES)
    headers = {"Accept": MESSAGE} if data.draw(st.booleans()) else {}
    with logged_errors() as errors:
        answer = cluster.ask(route.method, path, body, headers)
    assert errors == []
    cluster.check(route.method, route.path, answer)


@BOUNDED
@given(data=st.data())
def test_what_the_description_of_an_operation_allows_or_forbids_stops_no_job(
    cluster: RunningCluster, data: st.DataObject
) -> None:
    name = data.draw(st.sampled_from(sorted(set(cluster.operations) - {"DELETE /cluster"})))
    operation = cluster.operations[name]
    ends_a_job = (operation.method, operation.path) in ENDS_A_JOB or name.endswith(ENDING)
    drawn = data.draw(requests_of(operation, {} if ends_a_job else cluster.known))
    if name == "POST /jobs/{jobid}/savepoints" and drawn.body is not None:
        # It may ask for the end of the job as well, or for files in any folder.
        drawn = replace(drawn, body=b"{}")
    with logged_errors() as errors:
        answer = cluster.ask(drawn.method, drawn.target, drawn.body, drawn.headers)
    assert errors == []
    cluster.check(operation.method, operation.path, answer)


@BOUNDED
@given(data=st.data())
def test_a_damaged_job_graph_fails_alone(cluster: RunningCluster, data: st.DataObject) -> None:
    graph = bytearray(GRAPH)
    for _ in range(data.draw(st.integers(0, 4))):
        begin = data.draw(st.integers(0, len(graph)))
        end = begin + data.draw(st.integers(0, 4))
        graph[begin:end] = data.draw(st.binary(max_size=6))
    headers = {"Accept": MESSAGE, "Content-Type": MESSAGE}
    with logged_errors() as errors:
        answer = cluster.ask("POST", "/jobs", bytes(graph), headers)
    assert errors == []
    assert answer.status in (200, 400, 409), answer.body
    cluster.check("POST", "/jobs", answer)


# Each example takes the time of a process.
@settings(BOUNDED, max_examples=150)
@given(content=st.binary(max_size=200), body=BODIES)
def test_a_program_of_any_bytes_fails_alone(
    cluster: RunningCluster, content: bytes, body: Any
) -> None:
    part = b'Content-Disposition: form-data; name="jarfile"; filename="job.py"\r\n\r\n'
    form = b"--headrace-b\r\n" + part + content + b"\r\n--headrace-b--\r\n"
    headers = {"Content-Type": "multipart/form-data; boundary=headrace-b"}
    answer = cluster.ask("POST", "/jars/upload", form, headers)
    cluster.check("POST", "/jars/upload", answer)
    if answer.status != 200:
        return
    program = quote(json.loads(answer.body)["filename"].rpartition("/")[2], safe="")
    answer = cluster.ask("POST", f"/jars/{program}/run", body, {})
    cluster.check("POST", "/jars/{jarid}/run", answer)
    assert cluster.ask("DELETE", f"/jars/{program}", None, {}).status == 200
