"""A REST server of this process before the sample cluster, asked over a real socket."""

import http.client
import json
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from headrace.core.clock import Clock, SystemClock
from headrace.core.config import Settings
from headrace.core.security.tls import TlsIdentity
from headrace.core.threads import EventLoopThread
from headrace.rest.cluster_view import ControlPlane, SparkPage
from headrace.rest.home.connections import read_connection
from headrace.rest.rest_server import RestServer
from tests.unit.rest.sample_cluster import SampleBlobServer, SampleDispatcher, SampleResourceManager

_TIMEOUT_S: Final = 300
"""A server whose machine is busy is not one that hangs: a description of all routes takes seconds to make."""


@dataclass
class Answer:
    """Answer of a server, as it came."""

    status: int
    body: bytes
    headers: dict[str, str]

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def errors(self) -> str:
        return " | ".join(self.json["errors"])


@dataclass
class ServedCluster:
    """The server, and what is behind it."""

    server: RestServer
    dispatcher: SampleDispatcher
    resource_manager: SampleResourceManager
    token: str
    blob_server: SampleBlobServer
    ca_file: str = ""

    @property
    def authority(self) -> str:
        return self.server.address.partition("://")[2]

    def ask(
        self, method: str, path: str, body: Any = None, *, headers: dict[str, str] | None = None
    ) -> Answer:
        """Send one request, with the token unless `headers` are given."""
        sent = {"Authorization": f"Bearer {self.token}"} if headers is None else headers
        content = body if isinstance(body, (bytes, type(None))) else json.dumps(body).encode()
        if content is not None:
            sent = {"Content-Type": "application/json"} | sent
        connection = self._connection()
        try:
            connection.request(method, path, content, sent)
            response = connection.getresponse()
            found = {name.lower(): value for name, value in response.getheaders()}
            return Answer(response.status, response.read(), found)
        finally:
            connection.close()

    def _connection(self) -> http.client.HTTPConnection:
        if not self.ca_file:
            return http.client.HTTPConnection(self.authority, timeout=_TIMEOUT_S)
        context = ssl.create_default_context(cafile=self.ca_file)
        # The certificate vouches for itself alone, and names no host.
        context.verify_flags |= ssl.VerifyFlags.VERIFY_X509_PARTIAL_CHAIN
        context.check_hostname = False
        return http.client.HTTPSConnection(self.authority, timeout=_TIMEOUT_S, context=context)

    def get(self, path: str) -> Answer:
        return self.ask("GET", path)

    def get_until(self, path: str, condition: Callable[[Any], bool]) -> Answer:
        """Ask again and again until the answer is as it should be."""
        for _ in range(2000):
            answer = self.get(path)
            if condition(answer.json):
                return answer
            threading.Event().wait(0.005)
        raise AssertionError(f"{path} has not come to be as it should: {answer.body!r}")


@contextmanager
def served_cluster(
    home: Path,
    patch: pytest.MonkeyPatch,
    settings: dict[str, str] | None = None,
    log_folder: Path | None = None,
    clock: Clock | None = None,
    identity: TlsIdentity | None = None,
    spark_page: SparkPage | None = None,
) -> Iterator[ServedCluster]:
    """Serve the sample cluster at any free port; connection files are below `home`."""
    patch.setenv("HEADRACE_HOME", str(home))
    control = EventLoopThread("sample control")
    dispatcher, resource_manager = SampleDispatcher(), SampleResourceManager()
    blob_server = SampleBlobServer()
    server = RestServer(
        ControlPlane(  # type: ignore[arg-type]
            dispatcher,
            resource_manager,
            control.loop,
            blob_server=blob_server,
            log_folder=log_folder,
            spark_page=spark_page,
        ),
        Settings({"rest.port": "0", **(settings or {})}),
        clock or SystemClock(),
        name="sample",
        identity=identity,
    )
    try:
        server.start()
        (file,) = (home / "clusters").glob("*.json")
        found = read_connection(file)
        yield ServedCluster(
            server, dispatcher, resource_manager, found.token, blob_server, found.ca_file
        )
    finally:
        server.close()
        control.stop()
