"""Supervisors whose driver starts again: what commands show of them, and how one is stopped."""

import json
import os
import signal
import subprocess
from pathlib import Path

import msgspec
import pytest

from headrace.core.process.process_start import start_ticks
from headrace.rest.home.connections import ClusterConnection, write_connection
from headrace.rest.home.home_folder import write_private_file
from headrace.rest.home.supervisions import (
    Supervision,
    SupervisionFile,
    live_supervisions,
    supervision_of,
)
from tests.unit.cli.shell import Shell

AWAY = "the driver of session 'nightly' is gone, and process"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HEADRACE_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def restarting_file(name: str = "nightly") -> SupervisionFile:
    file = SupervisionFile(name, is_session=True, log_folder="/logs/of-the-supervisor")
    file.driver_ended()
    return file


def write_for(home: Path, process: subprocess.Popen[bytes], *, keeps_jobs: bool = False) -> None:
    restarting_file()
    (home / "supervisors" / f"{os.getpid()}.json").unlink()
    ticks = start_ticks(process.pid)
    entry = Supervision(
        "nightly", process.pid, ticks, 1, is_session=True, keeps_jobs=keeps_jobs, ended=1
    )
    file = home / "supervisors" / f"{process.pid}.json"
    write_private_file(file, msgspec.json.encode(entry))


def test_the_list_has_a_cluster_until_its_driver_runs_again(shell: Shell) -> None:
    file = restarting_file()
    row = shell("cluster", "list").lines[1].split()
    assert row[:5] == ["nightly", "session", "starts", "again", str(os.getpid())]
    [listed] = json.loads(shell("cluster", "list", "--json").out)["clusters"]
    assert (listed["supervisor-pid"], listed["address"]) == (os.getpid(), "")
    assert listed["restarting-since"] > 0
    file.driver_starts(os.getppid())
    file.driver_runs()
    assert "No cluster is running" in shell("cluster", "list").out


def test_a_driver_that_is_gone_is_away_before_its_supervisor_knows(
    other_process: subprocess.Popen[bytes],
) -> None:
    file = restarting_file()
    file.driver_starts(other_process.pid)
    file.driver_runs()
    [entry] = live_supervisions()
    assert not entry.is_restarting
    other_process.kill()
    other_process.wait()
    assert entry.is_restarting


def test_the_list_has_a_cluster_that_answers_once_with_its_supervisor(shell: Shell) -> None:
    file = restarting_file()
    address, pid = "http://127.0.0.1:8081", os.getppid()
    write_connection(ClusterConnection(address, "t", pid, "nightly", start_ticks=start_ticks(pid)))
    # It serves clients, and its supervisor is about to hear that.
    file.driver_starts(pid)
    [listed] = json.loads(shell("cluster", "list", "--json").out)["clusters"]
    assert (listed["address"], listed["supervisor-pid"]) == (address, os.getpid())


def test_info_shows_since_when_it_is_away_and_where_its_supervisor_says_why(shell: Shell) -> None:
    restarting_file()
    lines = shell("cluster", "info", "nightly").out
    assert f"process {os.getpid()}" in lines and "/logs/of-the-supervisor" in lines


@pytest.mark.parametrize(
    "words",
    [
        ("list",),
        ("run", "--target", "session", "--cluster", "nightly", "program.py"),
        ("run", "--target", "session", "program.py"),
    ],
)
def test_whoever_needs_it_is_told_to_wait_and_not_to_start_another_one(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "program.py").write_text("raise AssertionError('it was run')")
    restarting_file()
    refused = shell(*words)
    assert refused.code == 1 and AWAY in refused.err
    assert "cluster start" not in refused.err


def test_its_name_is_taken(shell: Shell) -> None:
    restarting_file()
    refused = shell("cluster", "start", "--name", "nightly")
    assert refused.code == 1
    assert f"'nightly' runs under process {os.getpid()}, its supervisor" in refused.err


@pytest.mark.parametrize("named", [("nightly",), ()])
def test_it_is_stopped_by_its_name_and_as_the_only_one(
    shell: Shell, home: Path, other_process: subprocess.Popen[bytes], named: tuple[str, ...]
) -> None:
    write_for(home, other_process)
    stopped = shell("cluster", "stop", *named)
    assert (stopped.code, stopped.out) == (0, "Cluster nightly has ended.\n")
    assert other_process.wait() == -signal.SIGTERM
    assert live_supervisions() == []


def test_who_stops_it_is_told_that_stored_jobs_were_not_cancelled(
    shell: Shell, home: Path, other_process: subprocess.Popen[bytes]
) -> None:
    write_for(home, other_process, keeps_jobs=True)
    stopped = shell("cluster", "stop", "nightly")
    assert stopped.code == 0 and "it had no driver to cancel its jobs" in stopped.err


def test_of_several_none_is_stopped_that_is_not_named(
    shell: Shell, home: Path, other_process: subprocess.Popen[bytes]
) -> None:
    write_for(home, other_process)
    restarting_file("orders")
    refused = shell("cluster", "stop")
    assert refused.code == 1
    assert f"nightly, which process {other_process.pid} is restarting" in refused.err
    assert other_process.poll() is None


def test_one_that_comes_back_may_be_meant_as_well_as_one_that_runs(
    shell: Shell, home: Path, other_process: subprocess.Popen[bytes]
) -> None:
    address, pid = "http://127.0.0.1:8081", os.getppid()
    write_connection(ClusterConnection(address, "t", pid, "orders", start_ticks=start_ticks(pid)))
    write_for(home, other_process)
    refused = shell("cluster", "stop")
    assert refused.code == 1
    assert "\n  -m 127.0.0.1:8081  orders\n" in refused.err
    assert f"\n  nightly, which process {other_process.pid} is restarting\n" in refused.err


def test_a_driver_of_another_machine_has_no_supervisor_here() -> None:
    file, pid = SupervisionFile("nightly", is_session=True, log_folder=""), os.getppid()
    file.driver_starts(pid)
    assert supervision_of(pid, start_ticks(pid)) is not None
    assert supervision_of(pid, start_ticks(pid) + 1) is None
    assert supervision_of(pid, 0) is None
