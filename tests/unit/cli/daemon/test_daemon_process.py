"""DaemonProcess: it hears how a start went, keeps secrets off command lines, and leaves nothing of a failed start."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.cli.daemon import daemon_process
from headrace.cli.daemon.console_file import NAME
from headrace.cli.daemon.daemon_process import DaemonFailedError, DaemonProcess, log_folder_of
from headrace.cli.daemon.messages import Instructions, RunProgram, RunSession
from headrace.client.program import Program
from headrace.core.clock import SystemClock
from headrace.core.process.process_start import start_ticks
from headrace.rest.client_errors import HomeFolderError
from testkit.waiting import wait_until

SECRET = "fs.s3a.secret.key", "hush-hush"
READY = """
import json, os, sys
told = json.loads(sys.stdin.read())
print("printed", flush=True)
report = {"cluster": {"connection_file": repr(sorted(told["settings"].items()))}, "exit_code": None}
with open(told["report_descriptor"], "w") as out:
    out.write(json.dumps(report) + "\\n")
"""
STAYING = READY + "import threading; threading.Event().wait()\n"
FAILING = READY.replace('"exit_code": None', '"failure": ["no such master", "more"]')
SILENT = "import sys; sys.stdin.read(); print('last words'); sys.exit(3)"
NEVER = "import sys, threading; sys.stdin.read(); threading.Event().wait()"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HEADRACE_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def daemons() -> Iterator[list[DaemonProcess]]:
    started: list[DaemonProcess] = []
    yield started
    for daemon in started:
        daemon.end()


def started_as(
    script: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, str]
) -> DaemonProcess:
    """A daemon that runs `script` in place of ours."""
    (tmp_path / "stand_in_for_a_daemon.py").write_text(script)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(daemon_process, "_MODULE", "stand_in_for_a_daemon")
    return DaemonProcess(RunSession("nightly"), settings)


@pytest.mark.parametrize("module", [None, "jobs.main"])
def test_instructions_are_read_as_they_were_written(module: str | None) -> None:
    program = Program(Path("jobs/main.py"), ("--year", "2013"), module)
    written = Instructions(RunProgram(program, is_standby=True), {"k": "v"}, 3, "/logs")
    assert Instructions.from_json(written.to_json()) == written


def test_settings_reach_it_and_stand_on_no_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, daemons: list[DaemonProcess]
) -> None:
    monkeypatch.setenv("HEADRACE_TOKEN", "of clients")
    daemon = started_as(STAYING, tmp_path, monkeypatch, dict([SECRET]))
    daemons.append(daemon)
    report = daemon.report()
    assert report.cluster.connection_file == repr([SECRET])
    process = Path("/proc") / str(daemon.pid)
    assert SECRET[1].encode() not in (process / "cmdline").read_bytes()
    environment = (process / "environ").read_bytes()
    assert SECRET[1].encode() not in environment
    assert b"HEADRACE_TOKEN=" not in environment


def test_it_has_a_session_of_its_own_and_a_private_console(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, daemons: list[DaemonProcess], home: Path
) -> None:
    daemon = started_as(STAYING, tmp_path, monkeypatch, {})
    daemons.append(daemon)
    daemon.report()
    assert os.getsid(daemon.pid) == daemon.pid
    assert (daemon.log_folder / NAME).read_text() == "printed\n"
    for folder in (daemon.log_folder, home / "logs", home):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_a_failure_that_it_reports_is_raised_and_nothing_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemon = started_as(FAILING, tmp_path, monkeypatch, {})
    with pytest.raises(DaemonFailedError) as failed:
        daemon.report()
    assert failed.value.lines == ("no such master", "more")
    assert not daemon.log_folder.exists()
    assert start_ticks(daemon.pid) == 0


def test_one_that_ends_without_a_report_is_quoted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemon = started_as(SILENT, tmp_path, monkeypatch, {})
    with pytest.raises(DaemonFailedError) as failed:
        daemon.report()
    first, *rest = failed.value.lines
    assert "it ended with code 3" in first
    assert rest == ["  last words"]
    assert not daemon.log_folder.exists()


def test_one_that_never_reports_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    daemon = started_as(NEVER, tmp_path, monkeypatch, {})
    with pytest.raises(DaemonFailedError, match=r"did not start within 0\.01 s"):
        daemon.report(timeout_s=0.01)
    assert start_ticks(daemon.pid) == 0
    assert not daemon.log_folder.exists()


def test_one_that_is_left_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, daemons: list[DaemonProcess]
) -> None:
    daemon = started_as(STAYING, tmp_path, monkeypatch, {})
    daemons.append(daemon)
    daemon.report()
    pid = daemon.pid
    daemon.leave()
    assert start_ticks(pid) != 0
    os.kill(pid, 9)
    wait_until(lambda: start_ticks(pid) == 0)


def test_each_start_reaps_those_that_were_left_and_have_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, daemons: list[DaemonProcess]
) -> None:
    first, second = (started_as(STAYING, tmp_path, monkeypatch, {}) for _ in range(2))
    for daemon in (first, second):
        daemon.report()
        daemon.leave()
    os.kill(first.pid, 9)
    wait_until(lambda: start_ticks(first.pid) == 0)
    daemons.append(started_as(STAYING, tmp_path, monkeypatch, {}))
    assert not Path(f"/proc/{first.pid}").exists()
    assert start_ticks(second.pid) != 0
    os.kill(second.pid, 9)
    wait_until(lambda: start_ticks(second.pid) == 0)
    daemons.append(started_as(STAYING, tmp_path, monkeypatch, {}))
    assert not Path(f"/proc/{second.pid}").exists()


def test_logs_go_where_the_settings_say(tmp_path: Path) -> None:
    folder = log_folder_of({"env.log.dir": str(tmp_path / "logs")}, SystemClock())
    assert folder.parent == tmp_path / "logs"


def test_a_home_that_others_may_write_to_is_refused(home: Path) -> None:
    home.mkdir()
    home.chmod(0o777)
    with pytest.raises(HomeFolderError, match="other users may write"):
        log_folder_of({}, SystemClock())
