"""A history server of this process, asked over a real socket."""

import http.client
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from headrace.core.clock import SystemClock
from headrace.core.config import Settings
from headrace.rest.history.history_server import HistoryServer
from tests.unit.rest.served_cluster import Answer


class ServedHistory:
    """The server, and the token that its connection file has."""

    def __init__(self, server: HistoryServer, token: str) -> None:
        self.server = server
        self.token = token

    def ask(
        self, method: str, path: str, *, headers: dict[str, str] | None = None, body: str = ""
    ) -> Answer:
        """Send one request, with the token unless `headers` are given."""
        sent = {"Authorization": f"Bearer {self.token}"} if headers is None else headers
        authority = self.server.address.partition("://")[2]
        connection = http.client.HTTPConnection(authority, timeout=30)
        try:
            connection.request(method, path, body or None, sent)
            response = connection.getresponse()
            found = {name.lower(): value for name, value in response.getheaders()}
            return Answer(response.status, response.read(), found)
        finally:
            connection.close()

    def get(self, path: str) -> Answer:
        return self.ask("GET", path)


@contextmanager
def served_history(
    home: Path, patch: pytest.MonkeyPatch, *folders: Path, settings: dict[str, str] | None = None
) -> Iterator[ServedHistory]:
    """Serve archives at any free port; its own files are below `home`. All archives have been looked at."""
    patch.setenv("HEADRACE_HOME", str(home))
    server = HistoryServer(
        Settings(
            {
                "historyserver.web.port": "0",
                "historyserver.archive.fs.dir": ",".join(map(str, folders)),
                **(settings or {}),
            }
        ),
        SystemClock(),
    )
    try:
        server.first_look.wait(30)
        port = server.address.rpartition(":")[2]
        connection = json.loads((home / "clusters" / f"{port}.json").read_text())
        yield ServedHistory(server, connection.get("token", ""))
    finally:
        server.close()
