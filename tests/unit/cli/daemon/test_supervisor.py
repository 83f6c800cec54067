"""Supervisor: it starts a session again after any end but an ordered one, with pauses that grow, and gives up."""

import errno
import logging
import os
from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest

from headrace.cli.daemon import daemon_process, supervisor
from headrace.cli.daemon.daemon_process import DaemonProcess
from headrace.cli.daemon.messages import Report, Reporter, RunProgram, RunSession
from headrace.cli.daemon.supervisor import SHORT_LIVES_MAX, RestartPauses, Supervisor
from headrace.client.program import Program
from headrace.core.errors import ConfigurationError
from headrace.rest.home.supervisions import live_supervisions

STAND_IN = """
import json, os, signal, sys
from pathlib import Path
told = json.loads(sys.stdin.read())
starts = Path(told["settings"]["starts"])
seen = Path(os.environ["HEADRACE_HOME"], "supervisors", f"{os.getppid()}.json")
ended = json.loads(seen.read_text()).get("ended", 0) if seen.exists() else 0
line = json.dumps({**told["duty"], "ended": ended})
starts.write_text((starts.read_text() if starts.exists() else "") + line + "\\n")
number = len(starts.read_text().splitlines())
if told["settings"]["dies"] == str(number):
    os.kill(os.getpid(), signal.SIGKILL)
if told["settings"]["fails"] == str(number):
    report = {"failure": ["no such master"]}
else:
    report = {"cluster": {"address": "http://127.0.0.1:1"}}
with open(told["report_descriptor"], "w") as out:
    out.write(json.dumps(report) + "\\n")
if number == 1:
    os.kill(os.getpid(), signal.SIGKILL)
sys.exit(int(told["settings"]["then"]) if number < 4 else 0)
"""

SESSION = RunSession("nightly", is_supervised=True)
APPLICATION = RunProgram(Program(Path("/programs/orders.py")), is_supervised=True)


class NoPauses(RestartPauses):
    """As many as ever, and none of them takes time."""

    def after(self, lived_s: float) -> float | None:
        return None if super().after(lived_s) is None else 0.0


def supervised(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    duty: RunSession | RunProgram = SESSION,
    fails: int = 0,
    dies: int = 0,
    then: int = 3,
) -> tuple[int, Report, list[dict[str, object]]]:
    """Supervise a stand-in; return the exit code, what was reported, and the duties of its starts.

    It reports and kills itself in its first life, and ends with the code `then`, from its fourth on with 0.
    """
    (tmp_path / "stand_in_for_a_session.py").write_text(STAND_IN)
    monkeypatch.setenv("HEADRACE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(daemon_process, "_MODULE", "stand_in_for_a_session")
    reading, writing = os.pipe()
    numbers = {"fails": str(fails), "dies": str(dies), "then": str(then)}
    settings = {"starts": str(tmp_path / "starts"), **numbers}
    code = Supervisor(duty, settings, False, pauses=NoPauses()).run(Reporter(writing))
    with open(reading, "rb") as told:
        report = msgspec.json.decode(told.read(), type=Report)
    starts = (tmp_path / "starts").read_text().splitlines()
    return code, report, [msgspec.json.decode(line) for line in starts]


def test_it_starts_a_session_again_until_that_is_stopped_and_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        code, report, starts = supervised(tmp_path, monkeypatch)
    assert (code, report.cluster.address, len(starts)) == (0, "http://127.0.0.1:1", 4)
    assert "was killed by signal 9" in caplog.text and "ended with code 3" in caplog.text
    assert "has ended in order: its supervisor ends" in caplog.messages[-1]
    # By then another driver may lead: it has started once it stands by.
    assert [start["is_standby"] for start in starts] == [False, True, True, True]
    assert not any(start["is_supervised"] for start in starts)


def test_commands_see_that_it_is_started_again_for_as_long_as_it_is_supervised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, _, starts = supervised(tmp_path, monkeypatch, fails=3)
    ended = [int(str(start["ended"])) for start in starts]
    assert ended[0] == 0 and ended[1] > 0
    # The start before has failed: it is away since the driver ended that ran.
    assert ended[2] > 0 and ended[3] == ended[2]
    assert live_supervisions() == []


def test_a_first_start_that_fails_is_told_and_not_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, report, starts = supervised(tmp_path, monkeypatch, fails=1)
    assert (code, report.failure, len(starts)) == (1, ("no such master",), 1)


def test_a_later_start_that_fails_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    code, _, starts = supervised(tmp_path, monkeypatch, fails=2)
    assert (code, len(starts)) == (0, 4)
    assert "did not start: no such master" in caplog.text


@pytest.mark.parametrize(
    "error",
    [
        BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable"),
        ConfigurationError("env.log.dir", "/logs", "it cannot be made: No space left on device"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_later_start_for_which_no_process_can_be_made_is_tried_again(
    error: Exception,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    attempts: list[int] = []

    def make(
        duty: RunSession | RunProgram, settings: Mapping[str, str], *, is_verbose: bool
    ) -> DaemonProcess:
        attempts.append(len(attempts))
        if len(attempts) == 2:
            raise error
        return DaemonProcess(duty, settings, is_verbose=is_verbose)

    monkeypatch.setattr(supervisor, "DaemonProcess", make)
    code, _, starts = supervised(tmp_path, monkeypatch)
    assert (code, len(attempts), len(starts)) == (0, 5, 4)
    assert f"did not start: {error}" in caplog.text


def test_a_first_start_for_which_no_process_can_be_made_is_told_and_not_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setattr(supervisor, "DaemonProcess", fail)
    (tmp_path / "starts").touch()
    code, report, starts = supervised(tmp_path, monkeypatch)
    assert (code, starts) == (1, [])
    assert "Resource temporarily unavailable" in report.failure[0]


def test_an_application_is_started_again_until_its_main_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        code, _, starts = supervised(tmp_path, monkeypatch, duty=APPLICATION, then=75)
    assert (code, len(starts)) == (0, 4)
    assert "application 'orders' ended with code 75; restarting it" in caplog.text
    assert [start["is_standby"] for start in starts] == [False, True, True, True]


def test_the_exit_code_of_an_application_is_that_of_its_supervisor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, _, starts = supervised(tmp_path, monkeypatch, duty=APPLICATION, then=3)
    assert (code, len(starts)) == (3, 2)


def test_an_application_whose_driver_dies_before_its_first_job_is_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, report, starts = supervised(tmp_path, monkeypatch, duty=APPLICATION, dies=1)
    assert (code, report.cluster.address) == (3, "http://127.0.0.1:1")
    # Its starter still waits for the first job.
    assert [start["is_standby"] for start in starts] == [False, False]


def test_a_session_that_dies_at_its_first_start_is_told_and_not_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, report, starts = supervised(tmp_path, monkeypatch, dies=1)
    assert (code, len(starts)) == (1, 1)
    assert "SIGKILL" in report.failure[0]


def test_pauses_double_up_to_a_minute_and_end() -> None:
    pauses = RestartPauses()
    found = [pauses.after(1) for _ in range(SHORT_LIVES_MAX + 1)]
    assert found == [1, 2, 4, 8, 16, 32, 60, 60, 60, 60, None]


def test_a_session_that_has_run_for_long_counts_as_new() -> None:
    pauses = RestartPauses()
    for _ in range(SHORT_LIVES_MAX):
        pauses.after(1)
    assert [pauses.after(3_600), pauses.after(1)] == [1, 2]
