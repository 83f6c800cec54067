"""One Spark session for all test modules that ask for it, and an end for every program that a test starts."""

from collections.abc import Iterator
from pathlib import Path

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


class SharedSession:
    """A `local[4]` with the settings that Headrace gives, for modules one after another: each start takes seconds."""

    def __init__(self) -> None:
        self._made: HostSession | None = None

    def start(self) -> HostSession:
        """Return the session, started where it is not."""
        self._made = host_session(Settings({"headrace.spark.master": "local[4]"}))
        return self._made

    def end(self) -> None:
        """Stop it, and with it the JVM and the variables of the environment that it has set."""
        made, self._made = self._made, None
        if made is not None:
            made.stop()


def _is_here(item: pytest.Item) -> bool:
    """Whether a test is below this folder: others may have another fixture of the same name."""
    return Path(__file__).parent in item.path.parents


def _users_of_session(items: list[pytest.Item]) -> set[str]:
    """Paths of modules of which a test asks for the session."""
    return {
        str(item.path)
        for item in items
        if _is_here(item) and "session" in getattr(item, "fixturenames", ())
    }


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put modules that use the session behind each other, so that one start serves them."""
    users = _users_of_session(items)
    places = [place for place, item in enumerate(items) if _is_here(item)]
    ordered = sorted(
        (items[place] for place in places), key=lambda item: str(item.path) not in users
    )
    for place, item in zip(places, ordered, strict=True):
        items[place] = item


@pytest.fixture(scope="session")
def shared_session() -> Iterator[SharedSession]:
    shared = SharedSession()
    yield shared
    shared.end()


@pytest.fixture(scope="module", autouse=True)
def no_foreign_session(request: pytest.FixtureRequest, shared_session: SharedSession) -> None:
    """A module that does not ask for the session finds neither it nor its environment."""
    if str(request.path) not in _users_of_session(request.session.items):
        shared_session.end()


@pytest.fixture(scope="module")
def session(shared_session: SharedSession) -> HostSession:
    """The session of all modules. A test leaves no query, no job and no setting of its own in it."""
    return shared_session.start()
