"""One Spark session per test module that asks for it, and an end for every program that a test starts."""

from collections.abc import Iterator

import pytest

from headrace.core.config import Settings
from headrace.spark.session.session import HostSession, host_session
from tests.spark.programs import Program

JAVA_OPTIONS = "-XX:TieredStopAtLevel=1"
"""Of every JVM that a test starts: its first compiler alone. A job of three records needs 12 seconds of processor with
it and 18 without, and hardly a test lasts long enough for what the second compiler makes. `make demo` has both."""


@pytest.fixture(scope="session", autouse=True)
def quick_java() -> Iterator[None]:
    """Spark's launcher gives the options in these variables to the JVMs of drivers, and of masters and workers.

    Not a file in a folder of its own for configuration: while that holds files, Java takes no classes from an archive,
    as `headrace warm-up` makes one.
    Source: https://github.com/apache/spark, launcher/…/SparkSubmitCommandBuilder.java, SparkClassCommandBuilder.java
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARK_SUBMIT_OPTS", JAVA_OPTIONS)
        patch.setenv("SPARK_DAEMON_JAVA_OPTS", JAVA_OPTIONS)
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
