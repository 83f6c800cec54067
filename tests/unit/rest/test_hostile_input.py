"""Whatever a request holds, REST answers it as its description says, and nothing fails inside."""

import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote_plus

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.rest.app import openapi
from headrace.rest.client_protocol import MESSAGE
from headrace.rest.routes import ROUTES
from tests.unit.graph.graphs import job, line
from tests.unit.rest.hostile_requests import (
    BODIES,
    HEAD_BYTES_MAX,
    HEADERS,
    NAMES,
    VALUES,
    exchange,
    filled,
    logged_errors,
    request_bytes,
)
from tests.unit.rest.openapi_answers import DocumentedAnswers
from tests.unit.rest.openapi_requests import operations_of, requests_of
from tests.unit.rest.sample_cluster import COUNTER, FAILED_JOB, RUNNING_JOB, TASK_MANAGER
from tests.unit.rest.served_cluster import ServedCluster, served_cluster

# It ends what the other requests need.
LEFT_OUT = {("DELETE", "/cluster")}
DRAWN_ROUTES = st.sampled_from([one for one in ROUTES if (one.method, one.path) not in LEFT_OUT])
BODY_BYTES_MAX = 100_000
GRAPH = msgspec.msgpack.encode(job(line()))


@pytest.fixture(scope="module", params=["true", "false"], ids=["gate open", "gate closed"])
def cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServedCluster]:
    """A server before the sample cluster that takes jobs and programs from outside, and one that does not."""
    own = {
        "web.submit.enable": request.param,
        # A program that a request starts is ended before it does anything.
        "web.timeout": "1 ms",
        "rest.server.max-content-length": str(BODY_BYTES_MAX),
    }
    with (
        pytest.MonkeyPatch.context() as patch,
        served_cluster(tmp_path_factory.mktemp("home"), patch, own) as served,
    ):
        yield served


@pytest.fixture(scope="module")
def documented(cluster: ServedCluster) -> DocumentedAnswers:
    return DocumentedAnswers(cluster.get("/openapi.json").json)


@pytest.fixture(scope="module")
def program(cluster: ServedCluster) -> str:
    """The id of an uploaded program, where the cluster takes any."""
    head = '--b\r\nContent-Disposition: form-data; name="jarfile"; filename="job.py"\r\n\r\n'
    headers = {
        "Authorization": f"Bearer {cluster.token}",
        "Content-Type": "multipart/form-data; boundary=b",
    }
    answer = cluster.ask("POST", "/jars/upload", f"{head}1\r\n--b--".encode(), headers=headers)
    return answer.json["filename"].rpartition("/")[2] if answer.status == 200 else "job.py"


@given(data=st.data())
def test_no_request_fails_inside(
    cluster: ServedCluster, documented: DocumentedAnswers, program: str, data: st.DataObject
) -> None:
    route = data.draw(DRAWN_ROUTES)
    values = data.draw(st.lists(VALUES, min_size=5, max_size=5))
    if route.path.startswith("/jars/{jarid}/") and data.draw(st.booleans()):
        values[0] = program
    query = data.draw(st.lists(st.tuples(NAMES, VALUES), max_size=4))
    path = filled(route, values)
    if query:
        path += "?" + "&".join(f"{quote_plus(name)}={quote_plus(value)}" for name, value in query)
    body: Any = None if route.method == "GET" else data.draw(BODIES)
    headers = {"Authorization": f"Bearer {cluster.token}"}
    if data.draw(st.booleans()):
        headers["Accept"] = MESSAGE
    with logged_errors() as errors:
        answer = cluster.ask(route.method, path, body, headers=headers)
    assert errors == []
    documented.check(route.method, route.path, answer)


OPERATIONS = operations_of(openapi())
"""What the description of the routes has; the server gives out the same, which is tested below."""
OPERATION_COUNT = 105
EXAMPLES_OF_ONE = 20
"""Requests of each operation, of each cluster."""
UNPARSABLE = "could not parse parameters|did not match expected format"


def known_to(program: str) -> dict[str, st.SearchStrategy[str]]:
    """Return what the sample cluster has, by the names of parameters."""
    jobs = st.sampled_from([RUNNING_JOB.hex(), FAILED_JOB.hex()])
    return {
        "jobid": jobs,
        "applicationid": jobs,
        "vertexid": st.just(COUNTER.hex()),
        "taskmanagerid": st.just(str(TASK_MANAGER)),
        "jarid": st.just(program),
        "subtaskindex": st.sampled_from(["0", "1"]),
        "attempt": st.sampled_from(["0", "1"]),
        "agg": st.sampled_from(["min", "max,skew"]),
        "subtasks": st.sampled_from(["0", "0-1,3"]),
    }


def test_the_server_gives_out_every_route_and_each_is_drawn(cluster: ServedCluster) -> None:
    served = operations_of(cluster.get("/openapi.json").json)
    assert served == OPERATIONS
    assert set(served) == {f"{one.method} {one.path}" for one in ROUTES if not one.is_message}
    assert len(served) == OPERATION_COUNT


@pytest.mark.slow
@pytest.mark.parametrize("name", OPERATIONS)
@settings(max_examples=EXAMPLES_OF_ONE)
@given(data=st.data())
def test_what_the_description_of_an_operation_allows_or_forbids_fails_nothing(
    cluster: ServedCluster,
    documented: DocumentedAnswers,
    program: str,
    name: str,
    data: st.DataObject,
) -> None:
    drawn = data.draw(requests_of(OPERATIONS[name], known_to(program)))
    headers = {"Authorization": f"Bearer {cluster.token}", **drawn.headers}
    with logged_errors() as errors:
        answer = cluster.ask(drawn.method, drawn.target, drawn.body, headers=headers)
    assert errors == []
    documented.check(drawn.method, OPERATIONS[name].path, answer)
    if drawn.is_allowed and answer.status == 400:
        assert not re.search(UNPARSABLE, answer.errors), answer.errors


@given(data=st.data())
def test_no_header_fails_inside(
    cluster: ServedCluster, documented: DocumentedAnswers, data: st.DataObject
) -> None:
    route = data.draw(DRAWN_ROUTES)
    path = filled(route, data.draw(st.lists(VALUES, min_size=5, max_size=5)))
    own = [("Host", cluster.authority), ("Authorization", f"Bearer {cluster.token}")]
    # Another header of the same name may come first, or last, or in its place.
    kept = data.draw(st.lists(st.sampled_from(own), unique=True))
    headers = [*kept, *data.draw(HEADERS), ("Connection", "close")]
    body = b"" if route.method == "GET" else data.draw(BODIES)
    with logged_errors() as errors:
        answer = exchange(cluster, request_bytes(route.method, path, headers, body))
    assert errors == []
    if answer is None:
        # A connection that is closed with bytes unread may lose the answer, as TCP does.
        assert len(request_bytes(route.method, path, headers)) > HEAD_BYTES_MAX
        return
    # What is no HTTP at all is answered before anything is known of the route.
    if answer.body != b"Invalid HTTP request received.":
        documented.check(route.method, route.path, answer)


@pytest.mark.parametrize(
    ("target", "status"),
    [
        ("*", 400),
        ("x", 400),
        ("[x", 400),
        ("http://[x/jobs", 400),
        ("//[/jobs", 404),
        ("/%2F%2E%2E", 404),
        ("/jobs%00", 404),
        # A line feed at the end of a path is not looked at.
        ("/jobs%0A", 200),
    ],
)
def test_a_target_that_is_no_path_of_a_route_is_refused(
    cluster: ServedCluster, target: str, status: int
) -> None:
    headers = [
        ("Host", cluster.authority),
        ("Authorization", f"Bearer {cluster.token}"),
        ("Connection", "close"),
    ]
    with logged_errors() as errors:
        answer = exchange(cluster, request_bytes("GET", target, headers))
    assert errors == []
    assert answer is not None
    assert answer.status == status, answer.body


def test_cookies_full_of_quotes_do_not_hold_up_a_stranger_s_refusal(cluster: ServedCluster) -> None:
    headers = [
        ("Host", cluster.authority),
        ("Cookie", 'a="' + "\\" * 60_000 + '"'),
        ("Connection", "close"),
    ]
    answer = exchange(cluster, request_bytes("GET", "/jobs", headers))
    assert answer is not None
    assert answer.status == 401


BROKEN_FRAMES = [
    b"Content-Length: 50\r\n\r\nonly a part",
    b"Content-Length: -1\r\n\r\n",
    b"Content-Length: 1\r\nContent-Length: 2\r\n\r\nab",
    b"Transfer-Encoding: chunked\r\n\r\n5\r\nab",
    b"Transfer-Encoding: chunked\r\n\r\nxyz\r\nab",
    b"Transfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\nab",
    b"Transfer-Encoding: gzip\r\n\r\nab",
    b"Content-Length: 0\r\n\r\nGET",
    b"Content-Length: 0\r\n\r\n\x00\x01\x02 / HTTP/1.1\r\n\r\n",
    b"X: \x00\r\n\r\n",
    b" folded\r\n\r\n",
    b"no colon\r\n\r\n",
    b"",
]


@pytest.mark.parametrize("is_stranger", [False, True], ids=["with token", "without"])
@pytest.mark.parametrize("path", ["/jars/upload", "/jobs", "/session", "/nowhere"])
@pytest.mark.parametrize("rest", BROKEN_FRAMES)
def test_a_request_that_breaks_off_or_is_no_http_fails_nothing(
    cluster: ServedCluster, rest: bytes, path: str, is_stranger: bool
) -> None:
    token = "" if is_stranger else f"Authorization: Bearer {cluster.token}\r\n"
    head = (
        f"POST {path} HTTP/1.1\r\nHost: {cluster.authority}\r\n{token}"
        "Content-Type: multipart/form-data; boundary=b\r\n"
    )
    with logged_errors() as errors:
        answer = exchange(cluster, head.encode() + rest, is_cut=True)
        assert cluster.get("/jobs").status == 200
    assert errors == []
    assert answer is None or 400 <= answer.status < 500


@pytest.mark.parametrize(
    "path", ["/jars/upload", "/jars/job.py/run", "/jobs", "/savepoint-disposal"]
)
@pytest.mark.parametrize("is_chunked", [False, True], ids=["declared", "chunked"])
def test_a_body_past_the_bound_is_refused(
    cluster: ServedCluster, path: str, is_chunked: bool
) -> None:
    host = f"Host: {cluster.authority}\r\nAuthorization: Bearer {cluster.token}\r\n"
    kind = "Content-Type: multipart/form-data; boundary=b\r\nConnection: close\r\n"
    field = b'--b\r\nContent-Disposition: form-data; name="x"; filename="job.py"\r\n\r\n'
    body = field + b"x" * BODY_BYTES_MAX
    if is_chunked:
        length, body = (
            b"Transfer-Encoding: chunked\r\n\r\n",
            b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body),
        )
    else:
        length = b"Content-Length: %d\r\n\r\n" % len(body)
    sent = f"POST {path} HTTP/1.1\r\n{host}{kind}".encode() + length + body
    with logged_errors() as errors:
        answer = exchange(cluster, sent)
    assert errors == []
    # A program is refused unread where the cluster takes none.
    is_unread = is_chunked and path == "/jars/upload" and not takes_jobs(cluster)
    # A connection that is closed with bytes unread may lose the answer, as TCP does.
    assert answer is None or answer.status == (403 if is_unread else 413), answer.body


def takes_jobs(cluster: ServedCluster) -> bool:
    return cluster.get("/config").json["features"]["web-submit"]


@given(data=st.data())
def test_a_damaged_job_graph_is_taken_or_refused(
    cluster: ServedCluster, data: st.DataObject
) -> None:
    graph = bytearray(GRAPH)
    for _ in range(data.draw(st.integers(0, 4))):
        begin = data.draw(st.integers(0, len(graph)))
        end = begin + data.draw(st.integers(0, 4))
        graph[begin:end] = data.draw(st.binary(max_size=6))
    headers = {
        "Authorization": f"Bearer {cluster.token}",
        "Accept": MESSAGE,
        "Content-Type": MESSAGE,
    }
    with logged_errors() as errors:
        answer = cluster.ask("POST", "/jobs", bytes(graph), headers=headers)
    assert errors == []
    # 409: the job is one that the cluster has.
    assert answer.status in ((200, 400, 409) if takes_jobs(cluster) else (403, 400))


def test_the_page_of_all_routes_has_the_statuses_that_answers_are_held_to(
    cluster: ServedCluster, documented: DocumentedAnswers
) -> None:
    page = cluster.get("/docs").body.decode()
    described = page.partition("<h2>Routes</h2>")[2].partition("<h2>Types</h2>")[0]
    for route in ROUTES:
        if route.is_message:
            continue
        place = f"<b>{route.method}</b> <code>{route.path}</code>"
        shown = described.partition(place)[2].partition("</details>")[0]
        statuses = documented.statuses(route.method, route.path)
        assert {"4XX", "500", "503", str(route.status)} <= set(statuses)
        assert all(f"<tr><td>{status}</td>" in shown for status in statuses), place
