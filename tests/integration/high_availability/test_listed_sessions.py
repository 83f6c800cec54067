"""`headrace cluster list` tells of sessions that lead, stand by, and lose their lease and stand by again.

Real processes, signals and files.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from testkit.waiting import wait_until
from tests.architecture.floor_plan import ROOT
from tests.integration.high_availability.drivers import FREEZES_BEFORE_IT_SERVES, settings_of

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(300)]

PROGRAM: Final = "tests.integration.high_availability.session_program"


class Sessions:
    """Sessions of one cluster on this machine, and the commands of their user."""

    def __init__(self, folder: Path) -> None:
        self._folder: Final = folder
        self._env: Final = {
            **os.environ, "PYTHONPATH": str(ROOT), "HEADRACE_HOME": str(folder / "home"),
        }  # fmt: skip
        self._settings: Final = folder / "settings.json"
        self._settings.write_text(json.dumps({**settings_of(folder), "rest.port": "0"}))
        self._started: Final[list[subprocess.Popen[bytes]]] = []

    def start(self, name: str, **environment: str) -> subprocess.Popen[bytes]:
        scratch = self._folder / name
        scratch.mkdir()
        with (scratch / "log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", PROGRAM, str(self._settings), name, str(scratch)],
                cwd=ROOT, env={**self._env, **environment}, stderr=log,
            )  # fmt: skip
        self._started.append(process)
        return process

    def await_log(self, name: str, text: str) -> None:
        log = self._folder / name / "log"
        wait_until(lambda: text in log.read_text(), 120, f"'{text}' in the log of {name}")

    def command(self, *words: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "headrace", *words],
            env=self._env, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    def asked(self) -> int:
        """Return the process that answers commands which name no cluster."""
        assert json.loads(self.command("list", "--json")) == {"jobs": []}
        return json.loads(self.command("cluster", "info", "--json"))["pid"]

    def listed(self) -> list[dict[str, Any]]:
        return json.loads(self.command("cluster", "list", "--json"))["clusters"]

    def kinds(self) -> list[tuple[str, str]]:
        """Return all that is listed, by name and kind."""
        return sorted((one["name"], one["kind"]) for one in self.listed())

    def await_kinds(self, **kinds: str) -> None:
        wait_until(lambda: self.kinds() == sorted(kinds.items()), 120, f"{kinds}")

    def served(self) -> set[int]:
        """Return the processes that say in a connection file which cluster they belong to."""
        files = (self._folder / "home" / "clusters").glob("[0-9]*.json")
        connections = [json.loads(file.read_text()) for file in files]
        return {one["pid"] for one in connections if "cluster_id" in one}

    def of(self, name: str) -> dict[str, Any]:
        (found,) = [one for one in self.listed() if one["name"] == name]
        return found

    def dispose(self) -> None:
        for process in self._started:
            process.kill()
            process.wait()


@pytest.fixture
def sessions(tmp_path: Path) -> Iterator[Sessions]:
    made = Sessions(tmp_path)
    yield made
    made.dispose()


def test_a_session_that_lost_its_lease_is_listed_once_as_the_standby_that_it_is(
    sessions: Sessions,
) -> None:
    first = sessions.start("first")
    sessions.await_kinds(first="session")
    second = sessions.start("second")
    sessions.await_kinds(first="session", second="standby")
    wait_until(
        lambda: sessions.of("second")["leader-address"] == sessions.of("first")["address"],
        60,
        "the standby has seen its leader",
    )

    first.send_signal(signal.SIGSTOP)
    wait_until(lambda: ("second", "session") in sessions.kinds(), 60, "the second one leads")
    assert sessions.asked() == second.pid, (
        "the first one has a connection file still, and is frozen"
    )
    first.send_signal(signal.SIGCONT)
    sessions.await_kinds(first="standby", second="session")
    leader = sessions.of("second")["address"]
    wait_until(lambda: sessions.of("first")["leader-address"] == leader, 60, "where it leads")
    assert f"behind {leader}" in sessions.command("cluster", "list")
    assert sessions.of("first")["pid"] == first.pid
    assert json.loads(sessions.command("cluster", "info", "first", "--json"))["kind"] == "standby"
    assert sessions.asked() == second.pid, "a command without -m asks who leads"

    second.kill()
    second.wait()
    sessions.await_kinds(first="session")
    assert sessions.asked() == first.pid
    sessions.command("cluster", "stop", "first")
    assert first.wait(60) == 0
    assert sessions.listed() == []


def test_a_session_that_lost_its_lease_is_stopped_by_its_name(sessions: Sessions) -> None:
    first = sessions.start("first")
    sessions.await_kinds(first="session")
    sessions.start("second")
    sessions.await_kinds(first="session", second="standby")
    first.send_signal(signal.SIGSTOP)
    wait_until(lambda: ("second", "session") in sessions.kinds(), 60, "the second one leads")
    first.send_signal(signal.SIGCONT)
    sessions.await_kinds(first="standby", second="session")
    sessions.command("cluster", "stop", "first")
    assert first.wait(60) == 0
    sessions.await_kinds(second="session")


def test_a_session_that_was_frozen_before_it_served_is_not_taken_for_the_leader_that_followed(
    sessions: Sessions,
) -> None:
    first = sessions.start("first", **{FREEZES_BEFORE_IT_SERVES: "1"})
    sessions.await_log("first", "(epoch 1)")
    second = sessions.start("second")
    sessions.await_kinds(second="session")
    first.send_signal(signal.SIGCONT)
    sessions.await_kinds(first="standby", second="session")
    wait_until(lambda: sessions.served() == {first.pid, second.pid}, 120, "both serve")
    assert sessions.asked() == second.pid
    second.kill()
    second.wait()
    sessions.await_kinds(first="session")
    assert sessions.asked() == first.pid
