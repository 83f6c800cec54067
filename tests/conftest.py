"""Options of a test run, and what hypothesis draws, for every test."""

import copy
import os
import shutil
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Final

import pytest
from hypothesis import HealthCheck, settings

from headrace.api.client import program_end

# `make test` looks at few examples, .ci/run at more (`--hypothesis-profile ci`), `make test-thorough` at many
# (`thorough`), derandomised: a run says the same today and tomorrow. `make test-random` draws new ones each time
# (`random`), from a seed that it prints. Tests that name a number keep it.
EXAMPLES = {"quick": 10, "ci": 20, "thorough": 100, "random": 1_000}
for name, max_examples in EXAMPLES.items():
    settings.register_profile(
        name,
        max_examples=max_examples,
        derandomize=name != "random",
        deadline=None,
        database=None,
        suppress_health_check=[HealthCheck.too_slow],
    )
settings.load_profile("quick")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--seed",
        type=int,
        default=None,
        help="run the simulation from this seed instead of the seeds its tests name",
    )
    parser.addoption(
        "--force-serialization",
        action="store_true",
        help="encode and decode calls within one process too, unless a test's own settings say otherwise",
    )
    parser.addoption(
        "--leave-nothing",
        action="store_true",
        help="fail where tests leave files in the folder of temporary files",
    )


_HOME: Final = "headrace-home"
_TEMPORARY_FILES: Final = pytest.StashKey[Path]()


def pytest_configure(config: pytest.Config) -> None:
    """Give this run a folder of temporary files, which its processes inherit and which goes with it."""
    if hasattr(config, "workerinput"):
        return
    # `tmp_path` stays where pytest has it, so that files of a test that failed can be looked at.
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir())
    folder = tempfile.mkdtemp(prefix="tests-")
    # PostgreSQL's server refuses to run as root: the user it runs as has to get to its own folder.
    os.chmod(folder, 0o711)
    config.stash[_TEMPORARY_FILES] = Path(folder)
    os.environ["TMPDIR"] = tempfile.tempdir = folder
    # Where clusters write how they are reached; drivers that a test kills leave theirs there.
    os.environ["HEADRACE_HOME"] = str(Path(folder, _HOME))


@pytest.hookimpl(wrapper=True)
def pytest_sessionfinish(session: pytest.Session) -> Generator[None]:
    """Delete the temporary files; with `--leave-nothing` files that tests left fail the run."""
    yield
    # Tests make streams that no job runs, which a program is told at its end.
    program_end.program_begins()
    folder = session.config.stash.get(_TEMPORARY_FILES, None)
    if folder is None:
        return
    left = sorted(file.name for file in folder.iterdir() if file.name != _HOME)
    shutil.rmtree(folder, ignore_errors=True)
    if left and session.config.getoption("--leave-nothing"):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
        print(f"\ntests left {len(left)} temporary files: {', '.join(left)}")


@pytest.fixture(scope="session")
def simulation_seed(request: pytest.FixtureRequest) -> int | None:
    """The seed of `make sim SEED=…`, or None where the test's own seeds hold."""
    return request.config.getoption("--seed")


@pytest.fixture(scope="session", autouse=True)
def forced_serialization(request: pytest.FixtureRequest) -> Iterator[bool]:
    """Whether `pekko.rpc.force-invocation-serialization` is on by default, as `--force-serialization` has it."""
    is_forced: bool = request.config.getoption("--force-serialization")
    if not is_forced:
        yield False
        return
    from headrace.rpc import service

    option = copy.copy(service.FORCE_INVOCATION_SERIALIZATION)
    object.__setattr__(option, "default", True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(service, "FORCE_INVOCATION_SERIALIZATION", option)
        yield True
