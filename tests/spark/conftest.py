"""One Spark session per test module that asks for it, and an end for every program that a test starts."""

from collections.abc import Iterator

import pytest

from headrace.core.config import Settings
from headrace.spark.session import HostSession, host_session
from tests.spark.programs import Program


@pytest.fixture
def started() -> Iterator[list[Program]]:
    """Programs that a test starts and puts here end with it, whatever happens."""
    made: list[Program] = []
    yield made
    for program in made:
        program.end()


@pytest.fixture(scope="module")
def session() -> Iterator[HostSession]:
    """A `local[4]` with the settings that Headrace gives."""
    made = host_session(Settings({"headrace.spark.master": "local[4]"}))
    yield made
    made.stop()
