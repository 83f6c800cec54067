"""Standbys of this machine: their files, and what `headrace cluster` shows of them and does with them."""

import json
import os
import signal
import stat
import subprocess
from pathlib import Path

import msgspec
import pytest

from headrace.cli.cluster.standby import Standby, StandbyFile, find_standby, live_standbys
from headrace.cluster.high_availability.lease import LeaderRecord
from headrace.core.process.process_start import start_ticks
from headrace.rest.home.home_folder import write_private_file
from tests.unit.cli.shell import Shell

HIGHLY_AVAILABLE = ("-D", "high-availability.type=file")
LEADER = LeaderRecord(3, "process 7 of there", 12, "http://127.0.0.1:8081")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HEADRACE_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def write_for(home: Path, pid: int, ticks: int) -> Path:
    StandbyFile("second").show(LEADER)
    (home / "standbys" / f"{os.getpid()}.json").unlink()
    file = home / "standbys" / f"{pid}.json"
    standby = Standby("second", pid, ticks, 1, LEADER.holder, LEADER.address)
    write_private_file(file, msgspec.json.encode(standby))
    return file


def test_a_standby_is_found_until_its_file_is_removed(home: Path) -> None:
    file = StandbyFile("second")
    file.show(LEADER)
    [found] = live_standbys()
    assert found == find_standby("second")
    assert (found.pid, found.leader_address) == (os.getpid(), LEADER.address)
    assert find_standby("first") is None
    [path] = (home / "standbys").iterdir()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    file.remove()
    assert live_standbys() == []


def test_the_file_of_a_process_that_has_ended_is_removed(home: Path) -> None:
    file = write_for(home, os.getpid(), start_ticks(os.getpid()) + 1)
    assert live_standbys() == []
    assert not file.exists()


def test_a_file_that_others_could_read_is_not_followed(home: Path) -> None:
    StandbyFile("second").show(LEADER)
    [path] = (home / "standbys").iterdir()
    path.chmod(0o644)
    assert live_standbys() == []


def test_list_and_info_show_it_with_its_leader(shell: Shell) -> None:
    StandbyFile("second").show(LEADER)
    row = shell("cluster", "list").lines[1]
    assert row.split()[:4] == ["second", "standby", "behind", LEADER.address]
    [listed] = json.loads(shell("cluster", "list", "--json").out)["clusters"]
    assert (listed["kind"], listed["leader-address"]) == ("standby", LEADER.address)
    assert "process 7 of there" in shell("cluster", "info", "second").out
    assert json.loads(shell("cluster", "info", "second", "--json").out)["pid"] == os.getpid()


def test_it_is_stopped_by_its_name(
    shell: Shell, home: Path, other_process: subprocess.Popen[bytes]
) -> None:
    write_for(home, other_process.pid, start_ticks(other_process.pid))
    stopped = shell("cluster", "stop", "second")
    assert (stopped.code, stopped.out) == (0, "Standby second has ended.\n")
    assert other_process.wait() == -signal.SIGTERM


def test_its_name_is_taken_and_it_needs_high_availability(shell: Shell) -> None:
    StandbyFile("second").show(LEADER)
    assert "called 'second' runs" in shell("cluster", "start", "--name", "second").err
    refused = shell("cluster", "start", "--standby")
    assert refused.code == 1 and "high-availability.type" in refused.err


def test_a_supervisor_is_for_daemons(shell: Shell) -> None:
    refused = shell("cluster", "start", "--supervise", "--foreground")
    assert refused.code == 1 and "--supervise cannot be used with --foreground" in refused.err


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--standby",), "--standby needs a program with a cluster of its own"),
        (("-d", "--supervise"), "-D high-availability.type"),
        (("--target", "per-job", "-d", "--standby", *HIGHLY_AVAILABLE), "and leave out --target"),
        (("--supervise", *HIGHLY_AVAILABLE), "--supervise needs -d"),
    ],
)
def test_a_driver_of_a_program_stands_by_where_it_can_go_on(
    shell: Shell, tmp_path: Path, words: tuple[str, ...], text: str
) -> None:
    program = tmp_path / "orders.py"
    program.write_text("raise AssertionError('it was run')")
    refused = shell("run", *words, str(program))
    assert refused.code == 1 and text in refused.err
