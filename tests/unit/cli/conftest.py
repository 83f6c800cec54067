"""A shell in which commands run. They set up the process's logs; tests that follow must not notice."""

import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from headrace.cli.main import main
from tests.unit.cli.restored_logs import restored_logs
from tests.unit.cli.shell import Outcome, Shell
from tests.unit.rest.fake_cluster import Answer, FakeCluster, Request
from tests.unit.rest.golden_shapes import is_route


@pytest.fixture(autouse=True)
def logs_as_they_were() -> Iterator[None]:
    with restored_logs():
        yield


@pytest.fixture(autouse=True)
def of_routes_alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Whatever a command asks a fake cluster, a real one has a route for."""
    asked: list[str] = []
    answer = FakeCluster.answer

    def remembered(cluster: FakeCluster, request: Request) -> Answer:
        asked.append(request.line)
        return answer(cluster, request)

    monkeypatch.setattr(FakeCluster, "answer", remembered)
    yield
    assert [line for line in asked if not is_route(line)] == []


@pytest.fixture
def other_process() -> Iterator[subprocess.Popen[bytes]]:
    """A process that only waits, in the place of one that commands show and stop."""
    process = subprocess.Popen(
        [sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE
    )
    yield process
    process.kill()
    process.communicate()


@pytest.fixture
def utc() -> Iterator[None]:
    """Times are printed in the zone of the machine: here it is none of them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", "UTC")
        time.tzset()
        yield
    time.tzset()


@pytest.fixture
def shell(capsys: pytest.CaptureFixture[str], utc: None) -> Shell:

    def run(*arguments: str) -> Outcome:
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        captured = capsys.readouterr()
        return Outcome(captured.out, captured.err, ended.value.code)

    return run
