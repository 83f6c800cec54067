"""Fixtures of the REST tests."""

from collections.abc import Iterator

import pytest

from tests.unit.rest.served_cluster import ServedCluster, served_cluster


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedCluster]:
    """A server before the sample cluster, for all tests of a module that only read."""
    with (
        pytest.MonkeyPatch.context() as patch,
        served_cluster(tmp_path_factory.mktemp("home"), patch) as served,
    ):
        yield served
