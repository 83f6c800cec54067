"""One Spark session per test module that asks for it."""

from collections.abc import Iterator

import pytest

from headrace.core.config import Settings
from headrace.spark.session import HostSession, host_session


@pytest.fixture(scope="module")
def session() -> Iterator[HostSession]:
    """A `local[4]` with the settings that Headrace gives."""
    made = host_session(Settings({"headrace.spark.master": "local[4]"}))
    yield made
    made.stop()
