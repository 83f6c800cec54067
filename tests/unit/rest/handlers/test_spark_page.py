"""Spark's page is passed on to whoever may ask the endpoint, with a token that Spark's filter takes."""

import base64
import hashlib
import hmac
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Final

import pytest

from headrace.core.errors import HostError
from headrace.rest.cluster_view import SparkPage
from tests.unit.rest.served_cluster import ServedCluster, served_cluster

KEY: Final = bytes(range(32))
POLICY: Final = "script-src 'self' 'nonce-1'"


class Upstream(BaseHTTPRequestHandler):
    """What Spark's page answers behind its filter; `seen` are the requests that the filter let through."""

    seen: list[str]

    def do_GET(self) -> None:
        header, payload, signature = (
            base64.urlsafe_b64decode(f"{part}==")
            for part in self.headers["Authorization"].removeprefix("Bearer ").split(".")
        )
        text = self.headers["Authorization"].removeprefix("Bearer ").rpartition(".")[0]
        assert json.loads(header)["alg"] == "HS256" and json.loads(payload)
        is_signed = hmac.compare_digest(signature, hmac.digest(KEY, text.encode(), hashlib.sha256))
        self.send_response(403 if not is_signed else 302 if self.path == "/" else 200)
        if self.path == "/":
            self.send_header("Location", f"http://{self.headers['Host']}/jobs/?a=b")
        self.send_header("Content-Security-Policy", POLICY)
        self.send_header("Content-Type", "text/html;charset=utf-8")
        self.send_header("Set-Cookie", "spark=1")
        self.end_headers()
        self.seen.append(self.path)
        self.wfile.write(f"below {self.headers['X-Forwarded-Context']}".encode())

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def seen() -> list[str]:
    return []


@pytest.fixture
def page(seen: list[str]) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Spark", (Upstream,), {"seen": seen}))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, page: str) -> Iterator[ServedCluster]:
    key = base64.urlsafe_b64encode(KEY).rstrip(b"=").decode()
    with served_cluster(tmp_path, monkeypatch, spark_page=SparkPage(lambda: page, key)) as served:
        yield served


def test_pages_are_passed_on_signed_with_what_was_asked_and_spark_s_own_policy(
    cluster: ServedCluster, seen: list[str]
) -> None:
    assert cluster.get("/config").json["features"]["web-spark"] is True
    answer = cluster.get("/spark/jobs/job/?id=0&name=a%2Fb")
    assert (answer.status, answer.body) == (200, b"below /spark")
    assert seen == ["/jobs/job/?id=0&name=a%2Fb"]
    assert answer.headers["content-security-policy"] == POLICY
    assert answer.headers["content-type"] == "text/html;charset=utf-8"
    assert answer.headers["x-frame-options"] == "DENY"
    assert "set-cookie" not in answer.headers
    moved = cluster.get("/spark/")
    assert (moved.status, moved.headers["location"]) == (302, "/spark/jobs/?a=b")


def test_strangers_see_nothing_and_nobody_changes_anything(
    cluster: ServedCluster, seen: list[str]
) -> None:
    for headers in ({}, {"Authorization": "Bearer other"}):
        assert cluster.ask("GET", "/spark/jobs/", headers=headers).status == 401
    assert cluster.ask("POST", "/spark/jobs/job/kill/?id=0", {}).status == 404
    assert cluster.get("/spark/jobs/job/kill/?id=0").status == 403
    assert seen == []


def test_a_page_that_does_not_answer_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = base64.urlsafe_b64encode(KEY).decode()
    gone = SparkPage(lambda: "http://127.0.0.1:1", key)
    with served_cluster(tmp_path, monkeypatch, spark_page=gone) as cluster:
        answer = cluster.get("/spark/jobs/")
        assert answer.status == 503
        assert answer.json["errors"] == ["Spark's page at http://127.0.0.1:1 does not answer"]


def test_a_page_that_cannot_start_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> str:
        raise HostError("Spark's page did not start: no port is free")

    with served_cluster(tmp_path, monkeypatch, spark_page=SparkPage(fail, "")) as cluster:
        answer = cluster.get("/spark/jobs/")
        assert answer.status == 503
        assert answer.json["errors"] == ["Spark's page did not start: no port is free"]


def test_without_spark_there_is_no_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with served_cluster(tmp_path, monkeypatch) as cluster:
        assert cluster.get("/config").json["features"]["web-spark"] is False
        assert cluster.get("/spark/jobs/").status == 404
