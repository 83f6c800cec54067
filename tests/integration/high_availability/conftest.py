"""Drivers of one cluster for tests, with storage in a folder or an object store, and with a service that elects."""

import contextlib
import os
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from testkit.kubernetes_api import kubernetes_api
from tests.integration.high_availability.drivers import Rivals, rivals
from tests.integration.high_availability.kubernetes_terms import kubernetes_options
from tests.integration.high_availability.zookeeper_server import zookeeper_server
from tests.integration.programs.s3_server import CREDENTIALS, S3Server, running_server


@pytest.fixture(scope="module")
def object_store() -> Iterator[S3Server]:
    """A server of the module's own, which this process and those that it starts may use."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in CREDENTIALS.items():
            patch.setenv(name, value)
        with running_server(dict(os.environ)) as server:
            yield server


@pytest.fixture
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> Generator[Rivals]:
    """Rivals with their storage in a folder; with the parameter `s3` in an object store.

    With `zookeeper` and `kubernetes` they elect their leader there, for terms about as short as those of files.
    """
    kind = getattr(request, "param", "folder")
    store_uri = ""
    options: dict[str, str] = {}
    with contextlib.ExitStack() as servers:
        if kind == "s3":
            server: S3Server = request.getfixturevalue("object_store")
            store_uri = server.folder(tmp_path.name)
        elif kind == "zookeeper":
            # A service outlives its drivers, which have sessions with it.
            zookeeper = servers.enter_context(zookeeper_server(tmp_path / "zookeeper"))
            options = zookeeper.options(tolerates=True)
        elif kind == "kubernetes":
            api = servers.enter_context(kubernetes_api())
            options = kubernetes_options(tmp_path, api, lease="6 s")
        yield servers.enter_context(rivals(tmp_path, store_uri, options))
