"""`headrace cluster start`: what it refuses, and which name it gives."""

import fcntl
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from subprocess import PIPE

import pytest

from headrace.cli.cluster.session import NameTakenError, taken_name
from headrace.cli.cluster.start_cluster import start_cluster
from headrace.cli.daemon.daemon_cluster_descriptor import DaemonClusterDescriptor
from headrace.cli.daemon.daemon_process import DaemonFailedError, DaemonProcess
from headrace.cli.daemon.messages import RunSession
from headrace.cli.general_options import declare_all_options
from headrace.client.deployed_cluster import DeployedCluster
from headrace.core.config import unknown_settings
from headrace.graph.pipeline_options import FREE_PREFIXES
from headrace.rest.home.connections import (
    ClusterConnection,
    write_connection,
)
from headrace.rest.home.home_folder import headrace_home
from tests.architecture.floor_plan import ROOT
from tests.unit.cli.shell import Shell


@pytest.fixture(autouse=True)
def home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_HOME", str(tmp_path_factory.mktemp("home")))


@pytest.mark.parametrize("name", ["", "-x", "a b", "../x", "x" * 65, "a/b", "\x1b[2J"])
def test_a_name_that_commands_or_files_would_take_for_something_else_is_refused(
    shell: Shell, name: str
) -> None:
    refused = shell("cluster", "start", f"--name={name}")
    assert refused.code == 1 and "is not a valid name" in refused.err


def test_a_name_that_a_cluster_has_is_refused(shell: Shell) -> None:
    write_connection(ClusterConnection("http://127.0.0.1:8081", "t", os.getpid(), "nightly"))
    refused = shell("cluster", "start", "--name", "nightly")
    assert refused.code == 1
    assert "'nightly' runs at http://127.0.0.1:8081" in refused.err


@pytest.mark.parametrize("home", ["/dev/null/x", "/proc/nothing"])
@pytest.mark.parametrize("command", [("cluster", "start"), ("run", "-d")])
def test_a_home_that_cannot_be_made_is_named_first(
    shell: Shell,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    home: str,
    command: tuple[str, ...],
) -> None:
    monkeypatch.setenv("HEADRACE_HOME", home)
    program = tmp_path / "program.py"
    program.write_text("")
    failed = shell(*command, *([str(program)] if command[0] == "run" else []))
    first = failed.err.splitlines()[0]
    assert failed.code == 1
    assert first.startswith(
        f"error: HEADRACE_HOME ({home}) cannot be used for connection files and logs: "
    )
    assert first.endswith("; set it to a folder in which this user alone may write")
    assert "Traceback" not in failed.err and "while handling" not in failed.err


HOLDER = """\
import sys
from headrace.cli.cluster.session import NameTakenError, taken_name
with taken_name("nightly"):
    print("has it", flush=True)
    sys.stdin.read()
"""


def test_of_two_that_start_under_one_name_the_second_fails_until_the_first_has_ended(
    shell: Shell,
) -> None:
    command = [sys.executable, "-c", HOLDER]
    with subprocess.Popen(command, stdin=PIPE, stdout=PIPE, text=True) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == "has it\n"
        refused = shell("cluster", "start", "--foreground", "--name", "nightly")
        first.kill()
    assert refused.code == 1
    assert refused.err.splitlines()[0] == (
        "error: a cluster called 'nightly' runs on this machine, or is being started: stop it with "
        "'headrace cluster stop nightly', or choose another name"
    )
    with taken_name("nightly"), taken_name("another"):
        names = headrace_home() / "names"
        assert sorted(file.name for file in names.iterdir()) == ["another", "nightly"]
    assert list(names.iterdir()) == []


def test_the_names_of_sessions_that_were_killed_go_with_the_next_start() -> None:
    with taken_name("running"):
        names = headrace_home() / "names"
        (names / "killed").touch()
        with taken_name("next"):
            assert sorted(file.name for file in names.iterdir()) == ["next", "running"]


def test_a_name_whose_file_is_deleted_while_it_is_taken_is_taken_with_another_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lock, opened = fcntl.flock, list[int]()

    def after_its_holder(file: int, operation: int) -> None:
        opened.append(file)
        if len(opened) == 1:
            # The one that had the name ends between open and lock.
            (headrace_home() / "names" / "nightly").unlink()
        lock(file, operation)

    monkeypatch.setattr(fcntl, "flock", after_its_holder)
    with taken_name("nightly"):
        assert len(opened) == 2
        with pytest.raises(NameTakenError), taken_name("nightly"):
            pass


def test_a_daemon_of_a_name_that_another_one_takes_ends_with_that_error() -> None:
    with taken_name("nightly"):
        daemon = DaemonProcess(RunSession("nightly"), {})
        with pytest.raises(DaemonFailedError, match="a cluster called 'nightly' runs on") as failed:
            daemon.report()
    assert failed.value.is_name_taken
    assert not daemon.log_folder.exists()


def test_a_session_without_a_name_gets_another_than_one_that_starts_at_the_same_time(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    def serve(settings: object, name: str, *rest: object, **more: object) -> int:
        print(f"serves as {name}")
        return 0

    def deploy(_: object, name: str, **more: object) -> DeployedCluster:
        try:
            with taken_name(name):
                return DeployedCluster("http://127.0.0.1:1")
        except NameTakenError as error:
            raise DaemonFailedError((str(error),), is_name_taken=True) from error

    monkeypatch.setattr("headrace.cli.cluster.start_cluster.serve_session", serve)
    monkeypatch.setattr(DaemonClusterDescriptor, "deploy_session_cluster", deploy)
    with taken_name("session"):
        assert shell("cluster", "start", "--foreground").out == "serves as session-2\n"
        assert json.loads(shell("cluster", "start", "--json").out)["name"] == "session-2"
        named = shell("cluster", "start", "--name", "session")
        assert named.code == 1 and "a cluster called 'session' runs on this machine" in named.err


def test_a_setting_that_nobody_has_is_refused_before_anything_starts(shell: Shell) -> None:
    refused = shell("cluster", "start", "-D", "headrace.spark.mastre=x")
    assert refused.code == 1 and "headrace.spark.master" in refused.err


def test_its_options_are_those_of_its_help() -> None:
    assert {one.name for one in start_cluster.params} == {
        "master", "wanted_name", "definitions", "foreground", "is_standby", "is_supervised", "verbose", "is_json",
    }  # fmt: skip


@pytest.mark.parametrize(
    "name", ["headrace-session.service", "headrace-orders@.service", "headrace-orders.yaml"]
)
def test_settings_of_an_example_of_deployment_are_options(name: str) -> None:
    text = (ROOT / "examples" / "deploy" / name).read_text()
    given = dict(re.findall(r"^ +- ?(?:D )?([a-z]\S*?)=(\S+)", text, re.MULTILINE))
    assert len(given) > 1
    declare_all_options()
    assert unknown_settings(given, FREE_PREFIXES) == []
