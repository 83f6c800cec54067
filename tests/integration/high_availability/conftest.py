"""Drivers of one cluster for tests, with their storage in a folder or in an object store."""

import os
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from tests.integration.high_availability.drivers import Rivals, rivals
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
    """Rivals with their storage in a folder; with the parameter `s3` in an object store."""
    store_uri = ""
    if getattr(request, "param", "folder") == "s3":
        server: S3Server = request.getfixturevalue("object_store")
        store_uri = server.folder(tmp_path.name)
    with rivals(tmp_path, store_uri) as one:
        yield one
