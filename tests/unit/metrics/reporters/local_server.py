"""An HTTP server on loopback that notes what it is sent, in place of a push gateway or a collector."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

from headrace.core.threads import start_thread


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    body: bytes


class LocalServer(HTTPServer):
    """Answers everything with `status`."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.status = 200
        super().__init__(("127.0.0.1", 0), _Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    def _note(self) -> None:
        server = self.server
        assert isinstance(server, LocalServer)
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        server.requests.append(Request(self.command, self.path, body))
        self.send_response(server.status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_PUT = do_POST = do_DELETE = _note

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def local_server() -> Iterator[LocalServer]:
    server = LocalServer()
    start_thread("noting server", server.serve_forever)
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
