"""RestClient: what it sends, which answers it takes, what it asks again, and how it says what went wrong."""

import socket
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headrace.core.clock import ManualClock, SystemClock
from headrace.core.config import Settings
from headrace.core.errors import ConfigurationError
from headrace.core.security.tls import generate_identity
from headrace.rest.client import RestClient, path_of
from headrace.rest.client_errors import (
    ClusterEndedError,
    OperationFailedError,
    OperationLateError,
    RestRefusedError,
    RestUnreachableError,
    UnauthorizedError,
    cause_line,
)
from tests.unit.rest.fake_cluster import (
    IN_PROGRESS,
    JOB,
    TOKEN,
    Answer,
    FakeCluster,
    Request,
    completed,
    fake_cluster,
)

SAVEPOINTS = f"/jobs/{JOB}/savepoints"


class Pauses:
    """A wait that moves a clock instead."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.seconds: list[float] = []

    def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)
        self.clock.advance_ms(1000 * seconds)


def client_of(
    cluster: FakeCluster, token: str = TOKEN, **settings: str
) -> tuple[RestClient, Pauses]:
    pauses = Pauses()
    given = Settings(
        {key.replace("__", "-").replace("_", "."): value for key, value in settings.items()}
    )
    client = RestClient(
        cluster.address, token, token_from="a file", settings=given, clock=pauses.clock, wait=pauses
    )
    return client, pauses


def test_get_sends_query_and_token_and_returns_the_json() -> None:
    with fake_cluster({"GET /jobs/metrics": [{"id": "uptime"}]}) as cluster:
        client, _ = client_of(cluster)
        assert client.get("/jobs/metrics", get="a,b", agg=None) == [{"id": "uptime"}]
    (request,) = cluster.requests
    assert request.query == {"get": ["a,b"]}
    assert request.headers["authorization"] == f"Bearer {TOKEN}"


def test_each_method_sends_its_body() -> None:
    answers = {"POST /a": {"x": 1}, "PATCH /a": {}, "DELETE /a": {}}
    with fake_cluster(answers) as cluster:
        client, _ = client_of(cluster)
        assert client.post("/a", {"drain": True}) == {"x": 1}
        assert client.patch("/a", mode="cancel") == {}
        assert client.delete("/a") == {}
    assert [(one.method, one.body) for one in cluster.requests] == [
        ("POST", {"drain": True}),
        ("PATCH", None),
        ("DELETE", None),
    ]
    assert cluster.requests[1].query == {"mode": ["cancel"]}


def test_parts_of_a_path_may_hold_any_character() -> None:
    assert path_of("taskmanagers", "h:1/../x?y#z") == "/taskmanagers/h%3A1%2F..%2Fx%3Fy%23z"


def test_a_refusal_says_status_and_the_first_string() -> None:
    said = {"errors": ["Job 12 not found", "at org.apache..."]}
    with fake_cluster({f"GET /jobs/{JOB}": Answer(404, said)}) as cluster:
        client, _ = client_of(cluster)
        with pytest.raises(RestRefusedError) as raised:
            client.get(f"/jobs/{JOB}")
    assert str(raised.value) == f"Job 12 not found (status 404 of GET /jobs/{JOB})"
    assert (raised.value.status, raised.value.errors) == (404, tuple(said["errors"]))


@pytest.mark.parametrize(
    ("errors", "says"),
    [
        (
            [
                "Internal server error.",
                "<Exception on server side:\njava.lang.X: no such job\n\tat y",
            ],
            "no such job",
        ),
        (["Internal server error."], "Internal server error."),
        (["org.apache.flink.A: java.util.B: deep"], "deep"),
        (["see: this"], "see: this"),
        ([""], "without a reason"),
        ([], "without a reason"),
    ],
)
def test_the_telling_line_of_an_error_is_found(errors: list[str], says: str) -> None:
    assert cause_line(errors) == says


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"<html>proxy</html>", "<html>proxy</html>"),
        (b"", "without a reason"),
        (b"[1]", "[1]"),
        (b'{"errors": "text"}', "text"),
        (b'{"errors": [7]}', "7"),
        (b"\xff\xfe", "\ufffd\ufffd"),
    ],
)
def test_an_error_body_of_any_shape_is_told(body: bytes, says: str) -> None:
    with fake_cluster({"GET /a": Answer(500, body)}) as cluster:
        client, _ = client_of(cluster)
        with pytest.raises(RestRefusedError) as raised:
            client.get("/a")
    assert raised.value.errors == (says,)


def test_a_wrong_token_says_where_it_was_from_and_where_the_right_one_is() -> None:
    with fake_cluster({}) as cluster:
        client, _ = client_of(cluster, token="old")
        with pytest.raises(
            UnauthorizedError, match="the token from a file is not the token of the cluster"
        ) as raised:
            client.get("/jobs")
        assert "HEADRACE_TOKEN" in str(raised.value)
        bare = RestClient(cluster.address)
        with pytest.raises(UnauthorizedError, match="no token was sent"):
            bare.get("/jobs")
    assert "old" not in str(raised.value).replace("folder", "")


def test_what_is_not_ready_is_asked_again_after_the_delay() -> None:
    starting = Answer(503, {"errors": ["no leader"]})
    with fake_cluster({"POST /a": (starting, starting, {"x": 1})}) as cluster:
        client, pauses = client_of(cluster, rest_retry_delay="2 s")
        assert client.post("/a") == {"x": 1}
    assert pauses.seconds == [2.0, 2.0]
    assert cluster.lines == ["POST /a"] * 3


def test_the_number_of_attempts_is_bounded() -> None:
    with fake_cluster({"GET /a": Answer(503, {"errors": ["no leader"]})}) as cluster:
        client, pauses = client_of(cluster, rest_retry_max__attempts="3")
        with pytest.raises(RestRefusedError, match="no leader"):
            client.get("/a")
    assert (len(cluster.requests), len(pauses.seconds)) == (3, 2)


def test_other_errors_are_not_asked_again() -> None:
    with fake_cluster({"POST /a": Answer(500, {"errors": ["broken"]})}) as cluster:
        client, pauses = client_of(cluster)
        with pytest.raises(RestRefusedError, match="broken"):
            client.post("/a")
    assert (len(cluster.requests), pauses.seconds) == (1, [])


def test_where_nobody_listens_it_is_tried_again_and_then_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    pauses = Pauses()
    told: list[Any] = []
    client = RestClient(
        f"http://127.0.0.1:{port}",
        settings=Settings({"rest.retry.max-attempts": "4"}),
        on_retry=told.append,
        wait=pauses,
    )
    with pytest.raises(
        RestUnreachableError, match="after 4 attempts: nobody listens there"
    ) as raised:
        client.get("/jobs")
    assert f"http://127.0.0.1:{port}" in str(raised.value)
    assert pauses.seconds == [3.0, 3.0, 3.0]
    assert len(told) == 3


def test_a_cluster_that_has_ended_is_not_asked_again() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    pauses = Pauses()
    ended = iter([False, True])
    client = RestClient(f"http://127.0.0.1:{port}", has_ended=lambda: next(ended), wait=pauses)
    with pytest.raises(ClusterEndedError, match="it has ended"):
        client.get("/jobs")
    assert pauses.seconds == [3.0]


def test_a_connection_that_breaks_is_told_and_not_asked_again() -> None:
    with fake_cluster({"GET /a": Answer(200, b"", {"Content-Length": "10"})}) as cluster:
        client, _ = client_of(cluster)
        with pytest.raises(RestUnreachableError, match="its answer ended early"):
            client.get("/a")
    assert len(cluster.requests) == 1


def test_an_answer_that_is_no_json_is_told() -> None:
    with fake_cluster({"GET /a": Answer(200, b"<html>")}) as cluster:
        client, _ = client_of(cluster)
        with pytest.raises(RestRefusedError, match="not JSON: check that http://127"):
            client.get("/a")


def test_a_redirect_is_not_followed_with_the_token() -> None:
    with fake_cluster({"GET /a": Answer(302, {}, {"Location": "http://evil.example"})}) as cluster:
        client, _ = client_of(cluster)
        with pytest.raises(
            RestRefusedError, match=r"redirects to http://evil\.example, which is not followed"
        ):
            client.get("/a")


def test_a_token_does_not_travel_in_clear_text() -> None:
    with pytest.raises(ConfigurationError, match="clear text"):
        RestClient("http://far.example.org:8081", TOKEN)
    RestClient("https://far.example.org:8081", TOKEN)
    RestClient("http://far.example.org:8081")


def test_a_file_of_authorities_that_is_none_is_told(tmp_path: Path) -> None:
    bad = tmp_path / "ca.pem"
    bad.write_text("no certificate")
    with pytest.raises(ConfigurationError, match="not a PEM file"):
        RestClient("https://far.example.org:8081", TOKEN, ca_file=str(bad))


def test_an_address_may_have_a_path_in_front() -> None:
    with fake_cluster({"GET /proxy/jobs": {"jobs": []}}) as cluster:
        client = RestClient(f"{cluster.address}/proxy/", TOKEN)
        assert client.get("/jobs") == {"jobs": []}


def test_an_operation_is_asked_for_until_it_is_completed() -> None:
    triggered: Callable[[Request], Any] = lambda request: Answer(  # noqa: E731
        202, {"request-id": request.body["triggerId"]}
    )
    answers = {
        f"POST {SAVEPOINTS}": triggered,
        f"GET {SAVEPOINTS}/*": (IN_PROGRESS, IN_PROGRESS, completed(location="file:/a")),
    }
    seconds: list[float] = []
    with fake_cluster(answers) as cluster:
        client, pauses = client_of(cluster)
        request_id = client.begin(SAVEPOINTS, {"target-directory": "/a"})
        operation = client.result_of(f"{SAVEPOINTS}/{request_id}", request_id, seconds.append)
    assert operation == {"location": "file:/a"}
    (body,) = cluster.bodies(f"POST {SAVEPOINTS}")
    assert body["target-directory"] == "/a"
    assert len(body["triggerId"]) == 32
    assert cluster.lines[1:] == [f"GET {SAVEPOINTS}/{body['triggerId']}"] * 3
    assert pauses.seconds == [0.05, 0.1]
    assert seconds == pytest.approx([0.0, 0.05])


@pytest.mark.parametrize("field", ["failure-cause", "failureCause"])
def test_an_operation_that_failed_says_its_cause(field: str) -> None:
    cause = {"class": "X", "stack-trace": "X: not all tasks run\n\tat y"}
    answers = {
        f"POST {SAVEPOINTS}": {"request-id": "ab"},
        f"GET {SAVEPOINTS}/ab": completed(**{field: cause}),
    }
    with fake_cluster(answers) as cluster:
        client, _ = client_of(cluster)
        with pytest.raises(OperationFailedError, match="not all tasks run") as raised:
            client.result_of(f"{SAVEPOINTS}/ab", "ab")
    assert raised.value.cause == cause["stack-trace"]


def test_patience_has_an_end_and_says_where_the_result_will_be() -> None:
    answers = {f"POST {SAVEPOINTS}": {"request-id": "ab"}, f"GET {SAVEPOINTS}/ab": IN_PROGRESS}
    with fake_cluster(answers) as cluster:
        client, pauses = client_of(cluster, client_timeout="5 s")
        with pytest.raises(OperationLateError, match=f"request {SAVEPOINTS}/ab for the result"):
            client.result_of(f"{SAVEPOINTS}/ab", "ab")
    assert sum(pauses.seconds) == pytest.approx(5, abs=1)
    assert max(pauses.seconds) == 0.25


def whole(client: RestClient, path: str, begin: int = 0) -> tuple[int, bytes]:
    pieces = list(client.text(path, begin))
    return (pieces[0].offset if pieces else -1), b"".join(piece.content for piece in pieces)


def ranged(request: Request) -> Answer:
    """A file of ten bytes, of which an answer has at most four."""
    first = request.headers["range"].removeprefix("bytes=").removesuffix("-")
    begin = 10 + int(first) if first.startswith("-") else int(first)
    if begin >= 10:
        return Answer(416, b"", {"Content-Range": "bytes */10"})
    content = b"0123456789"[begin : begin + 4]
    place = f"bytes {begin}-{begin + len(content) - 1}/10"
    return Answer(206, content, {"Content-Range": place})


@pytest.mark.parametrize("path", ["/whole", "/ranged"])
def test_a_text_is_given_from_a_byte_on_whether_or_not_the_server_knows_ranges(path: str) -> None:
    answers = {"GET /whole": Answer(200, b"0123456789"), "GET /ranged": ranged}
    with fake_cluster(answers) as cluster:
        client, _ = client_of(cluster)
        assert whole(client, path) == (0, b"0123456789")
        assert whole(client, path, 7) == (7, b"789")
        assert whole(client, path, 10) == (-1, b"")
        # It was longer before: a new file has its name.
        assert whole(client, path, 11) == (0, b"0123456789")


def test_the_end_of_a_text_is_given_with_its_place() -> None:
    with fake_cluster({"GET /ranged": ranged}) as cluster:
        client, _ = client_of(cluster)
        assert whole(client, "/ranged", -3) == (7, b"789")


def test_a_text_in_several_answers_is_asked_for_until_its_end_and_no_further() -> None:
    with fake_cluster({"GET /ranged": ranged}) as cluster:
        client, _ = client_of(cluster)
        pieces = list(client.text("/ranged"))
    assert [(one.offset, one.content) for one in pieces] == [(0, b"0123"), (4, b"4567"), (8, b"89")]
    asked = [one.headers["range"] for one in cluster.requests]
    assert asked == ["bytes=0-", "bytes=4-", "bytes=8-"]


def test_an_answer_that_brings_a_text_no_further_is_the_last() -> None:
    stuck = Answer(206, b"0", {"Content-Range": "bytes 0-0/10"})
    with fake_cluster({"GET /log": stuck}) as cluster:
        client, _ = client_of(cluster)
        assert whole(client, "/log", 5) == (-1, b"")
    assert len(cluster.requests) == 1


def test_a_long_text_comes_in_pieces_that_know_their_places() -> None:
    text = bytes(range(256)) * 1000
    with fake_cluster({"GET /log": Answer(200, text)}) as cluster:
        client, _ = client_of(cluster)
        pieces = list(client.text("/log", 70_000))
    assert len(pieces) > 1
    assert all(text[one.offset : one.offset + len(one.content)] == one.content for one in pieces)
    assert b"".join(one.content for one in pieces) == text[70_000:]


def test_a_text_that_is_not_there_is_refused() -> None:
    with fake_cluster({}) as cluster:
        client, _ = client_of(cluster)
        with pytest.raises(RestRefusedError, match="Not found: /log"):
            list(client.text("/log"))


def test_a_certificate_is_trusted_by_the_file_that_holds_it_and_not_otherwise(
    tmp_path: Path,
) -> None:
    identity = generate_identity(SystemClock().now_ms())
    own, certificate = tmp_path / "own.pem", tmp_path / "certificate.pem"
    own.write_bytes(identity.certificate + identity.private_key)
    certificate.write_bytes(identity.certificate)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(own)
    with fake_cluster({"GET /a": {"x": 1}}) as cluster:
        cluster.wrap(context)
        address = cluster.address.replace("http:", "https:")
        with pytest.raises(RestUnreachableError, match="certificate is not trusted"):
            RestClient(address, TOKEN).get("/a")
        assert RestClient(address, TOKEN, ca_file=str(certificate)).get("/a") == {"x": 1}


@pytest.mark.parametrize("token", ["ключ", "two\nlines", "two words"])
def test_a_token_that_no_header_takes_is_refused_and_not_shown(token: str) -> None:
    with pytest.raises(ConfigurationError, match="HEADRACE_TOKEN") as refused:
        RestClient("http://127.0.0.1:1", token, token_from="HEADRACE_TOKEN")
    assert token not in str(refused.value)
