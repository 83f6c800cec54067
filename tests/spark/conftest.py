"""One Spark session per test module that asks for it, and an end for every program that a test starts."""

from collections.abc import Iterator

import pytest

from headrace.core.config import Settings
from headrace.spark.session.session import HostSession, host_session
from tests.spark.java_options import FIRST_COMPILER
from tests.spark.programs import Program


@pytest.fixture(scope="session", autouse=True)
def quick_java() -> Iterator[None]:
    """Spark's launcher gives the options in this variable to the JVMs of drivers.

    Not a file in a folder of its own for configuration: while that holds files, Java takes no classes from an archive,
    as `headrace warm-up` makes one. `make demo` has both compilers.
    Source: https://github.com/apache/spark, launcher/…/SparkSubmitCommandBuilder.java
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARK_SUBMIT_OPTS", FIRST_COMPILER)
        yield


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
