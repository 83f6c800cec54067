"""A REST endpoint on a real socket that answers what a test gave it, and remembers what it was asked."""

import json
import os
import ssl
import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from headrace.rest.home.connections import ClusterConnection, write_connection

TOKEN = "the-token"
JOB = "0a" * 16
VERTEX = "0b" * 16


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    query: dict[str, list[str]]
    body: Any
    headers: dict[str, str]

    @property
    def line(self) -> str:
        return f"{self.method} {self.path}"


@dataclass(frozen=True)
class Answer:
    status: int = 200
    body: Any = None
    headers: dict[str, str] = field(default_factory=dict[str, str])


class FakeCluster:
    """Answers by method and path: a value is JSON with status 200, a function is asked, a tuple is given one by one.

    A key that ends in `/*` takes any last part.

    The last of a tuple stays. What has no answer is 404, as on a real endpoint.
    """

    def __init__(self, answers: dict[str, Any], token: str = TOKEN) -> None:
        self.answers = answers
        self.requests: list[Request] = []
        self.token = token
        self._turns: dict[str, int] = {}
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler_class())
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def authority(self) -> str:
        return f"127.0.0.1:{self._server.server_address[1]}"

    @property
    def lines(self) -> list[str]:
        return [request.line for request in self.requests]

    def bodies(self, line: str) -> list[Any]:
        return [request.body for request in self.requests if request.line == line]

    def wrap(self, context: ssl.SSLContext) -> None:
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def answer(self, request: Request) -> Answer:
        with self._lock:
            self.requests.append(request)
            if self.token and request.headers.get("authorization") != f"Bearer {self.token}":
                return Answer(401, {"errors": ["a token is needed"]})
            key = self._key(request.line)
            given = self.answers.get(key, Answer(404, not_found(request.path)))
            if isinstance(given, tuple):
                turn = self._turns.get(key, 0)
                self._turns[key] = turn + 1
                given = given[min(turn, len(given) - 1)]
        if callable(given):
            given = given(request)
        return given if isinstance(given, Answer) else Answer(200, given)

    def _key(self, line: str) -> str:
        # An id that the client chose is no part of what a test gave.
        return line if line in self.answers else f"{line.rpartition('/')[0]}/*"

    def _handler_class(self) -> type[BaseHTTPRequestHandler]:
        cluster = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, format: str, *args: Any) -> None:
                pass

            def _serve(self) -> None:
                parts = urlsplit(self.path)
                content = self.rfile.read(int(self.headers.get("content-length", 0)))
                headers = {name.lower(): value for name, value in self.headers.items()}
                body = json.loads(content) if content else None
                request = Request(self.command, parts.path, parse_qs(parts.query), body, headers)
                answer = cluster.answer(request)
                sent = (
                    answer.body
                    if isinstance(answer.body, bytes)
                    else json.dumps(answer.body).encode()
                )
                self.send_response(answer.status)
                for name, value in {"Content-Length": str(len(sent)), **answer.headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(sent)

            do_GET = do_POST = do_PATCH = do_DELETE = _serve

        return Handler


def not_found(path: str) -> dict[str, list[str]]:
    return {"errors": [f"Not found: {path}"]}


@contextmanager
def fake_cluster(answers: dict[str, Any], token: str = TOKEN) -> Generator[FakeCluster]:
    cluster = FakeCluster(answers, token)
    try:
        yield cluster
    finally:
        cluster.close()


def home_of(monkeypatch: pytest.MonkeyPatch, home: Path, *clusters: FakeCluster) -> list[Path]:
    """Make `home` the folder of connection files, with one for each cluster."""
    monkeypatch.setenv("HEADRACE_HOME", str(home))
    monkeypatch.delenv("HEADRACE_TOKEN", raising=False)
    return [
        write_connection(
            ClusterConnection(one.address, one.token, os.getpid(), f"job of {one.authority}")
        )
        for one in clusters
    ]


IN_PROGRESS = {"status": {"id": "IN_PROGRESS"}, "operation": None}


def completed(**operation: Any) -> dict[str, Any]:
    return {"status": {"id": "COMPLETED"}, "operation": operation}
