"""`headrace cluster list | info | stop`: from connection files, and over REST."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.core.process.process_start import start_ticks
from headrace.rest.home.connections import ClusterConnection, connections_folder, write_connection
from tests.unit.cli.shell import Shell
from tests.unit.rest.fake_cluster import FakeCluster, Request, fake_cluster, home_of

OVERVIEW = {
    "taskmanagers": 2, "slots-total": 4, "slots-available": 1, "jobs-running": 3, "jobs-finished": 5,
    "jobs-cancelled": 7, "jobs-failed": 9, "flink-version": "1.20", "flink-commit": "",
}  # fmt: skip
SETTINGS = [{"key": "headrace.spark.master", "value": "local[6]"}]
ANSWERS: dict[str, Any] = {"GET /overview": OVERVIEW, "GET /jobmanager/config": SETTINGS}
STARTED = 1_795_000_000_000
ENDS_WHEN_TOLD = "import sys; sys.stdin.read()"
STAYS = """
import signal, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home_of(monkeypatch, tmp_path / "home")


@pytest.fixture
def processes() -> Iterator[list[subprocess.Popen[str]]]:
    started: list[subprocess.Popen[str]] = []
    yield started
    for process in started:
        process.kill()
        process.communicate()


def write(
    address: str,
    name: str,
    pid: int = 0,
    *,
    is_session: bool = True,
    is_history: bool = False,
) -> Path:
    pid = pid or os.getpid()
    return write_connection(
        ClusterConnection(
            address,
            "the-token",
            pid,
            name,
            STARTED,
            is_session=is_session,
            is_history=is_history,
            start_ticks=start_ticks(pid),
        )
    )


def started(
    processes: list[subprocess.Popen[str]], script: str, *, prints: bool = False
) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE if prints else None,
        text=True,
    )
    processes.append(process)
    if prints:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    return process


def test_a_list_shows_each_cluster_with_its_kind(shell: Shell) -> None:
    write("http://127.0.0.1:8081", "nightly")
    write("http://127.0.0.1:8082", "departures", is_session=False)
    write("http://127.0.0.1:8083", "", is_session=False, is_history=True)
    found = shell("cluster", "list")
    assert found.code == 0
    pid = os.getpid()
    assert [line.split() for line in found.lines] == [
        ["NAME", "KIND", "ADDRESS", "PROCESS", "SINCE"],
        ["nightly", "session", "http://127.0.0.1:8081", str(pid), "2026-11-18", "11:06:40"],
        ["departures", "application", "http://127.0.0.1:8082", str(pid), "2026-11-18", "11:06:40"],
        ["-", "history", "http://127.0.0.1:8083", str(pid), "2026-11-18", "11:06:40"],
    ]


def test_a_list_for_programs_is_one_document(shell: Shell) -> None:
    assert json.loads(shell("cluster", "list", "--json").out) == {"clusters": []}
    write("http://127.0.0.1:8081", "nightly")
    assert json.loads(shell("cluster", "list", "--json").out) == {
        "clusters": [
            {
                "name": "nightly",
                "kind": "session",
                "address": "http://127.0.0.1:8081",
                "pid": os.getpid(),
                "started": STARTED,
            }
        ]
    }


def test_a_list_without_clusters_says_how_to_start_one(shell: Shell) -> None:
    assert "headrace cluster start" in shell("cluster", "list").out


def test_the_file_of_a_cluster_that_has_ended_is_removed(shell: Shell) -> None:
    process = subprocess.Popen([sys.executable, "-c", ENDS_WHEN_TOLD], stdin=subprocess.PIPE)
    file = write("http://127.0.0.1:8081", "nightly", process.pid)
    process.communicate()
    found = shell("cluster", "list")
    assert "No cluster is running" in found.out and "has ended" in found.err
    assert not file.exists()


def test_no_name_of_a_cluster_writes_to_the_terminal_what_controls_it(shell: Shell) -> None:
    write("http://127.0.0.1:8081", "evil\x1b[2J")
    assert "\x1b" not in shell("cluster", "list").out


def test_info_shows_slots_jobs_and_the_spark_master(shell: Shell) -> None:
    with fake_cluster(ANSWERS) as cluster:
        write(cluster.address, "nightly")
        lines = [line.split(":", 1) for line in shell("cluster", "info", "nightly").lines]
        shown = {title: text.strip() for title, text in lines}
        assert shown["kind"] == "session"
        assert shown["spark master"] == "local[6]"
        assert shown["slots"] == "4, 3 of them in use"
        assert shown["jobs"] == "3 running, 5 finished, 7 cancelled, 9 failed"
        facts = json.loads(shell("cluster", "info", "-m", cluster.authority, "--json").out)
        assert (facts["name"], facts["slots-available"], facts["master"]) == (
            "nightly",
            1,
            "local[6]",
        )


def test_a_cluster_is_named_by_its_name_or_its_address_and_not_by_both(shell: Shell) -> None:
    refused = shell("cluster", "info", "nightly", "-m", "127.0.0.1:8081")
    assert refused.code == 1
    assert "not both" in refused.err


def test_a_name_that_nobody_has_is_an_error_that_lists_the_others(shell: Shell) -> None:
    write("http://127.0.0.1:8081", "nightly")
    refused = shell("cluster", "stop", "daily")
    assert refused.code == 1
    assert "called 'daily'" in refused.err and "there is nightly" in refused.err


def ending(process: subprocess.Popen[str]) -> dict[str, Any]:
    """Answers of a cluster that ends its process when it is told to."""

    def delete(request: Request) -> dict[str, Any]:
        assert process.stdin is not None
        process.stdin.close()
        process.stdin = None
        return {}

    return {**ANSWERS, "DELETE /cluster": delete}


def lines_of(cluster: FakeCluster) -> list[str]:
    return [line for line in cluster.lines if line.startswith("DELETE")]


def test_stop_waits_until_the_process_is_gone(
    shell: Shell, processes: list[subprocess.Popen[str]]
) -> None:
    process = started(processes, ENDS_WHEN_TOLD)
    with fake_cluster(ending(process)) as cluster:
        write(cluster.address, "nightly", process.pid)
        stopped = shell("cluster", "stop", "nightly")
        assert (stopped.code, stopped.out) == (0, "Cluster nightly has ended.\n")
        assert lines_of(cluster) == ["DELETE /cluster"]
    assert process.wait() == 0


def test_a_process_that_does_not_end_is_an_error_and_stays(
    shell: Shell, processes: list[subprocess.Popen[str]]
) -> None:
    process = started(processes, ENDS_WHEN_TOLD)
    with fake_cluster({**ANSWERS, "DELETE /cluster": {}}) as cluster:
        write(cluster.address, "nightly", process.pid)
        refused = shell("cluster", "stop", "nightly", "--timeout", "0.01")
        assert refused.code == 1
        assert "still runs after 0.01 s" in refused.err and "--force" in refused.err
    assert process.poll() is None


@pytest.mark.parametrize("is_frozen", [True, False], ids=["does not answer", "does not listen"])
def test_a_cluster_that_does_not_answer_is_waited_for_no_longer_than_the_user_says(
    shell: Shell, processes: list[subprocess.Popen[str]], is_frozen: bool
) -> None:
    process = started(processes, ENDS_WHEN_TOLD)
    with socket.create_server(("127.0.0.1", 0)) as server:
        # The kernel takes connections for a process that does nothing with them.
        address = f"http://127.0.0.1:{server.getsockname()[1]}"
        if not is_frozen:
            server.close()
        write(address, "nightly", process.pid)
        began_s = time.monotonic()
        refused = shell("cluster", "stop", "nightly", "--timeout", "1.5")
    assert 1.5 <= time.monotonic() - began_s < 10
    assert refused.code == 1
    assert f"(process {process.pid}) still runs after 1.5 s: end it with --force" in refused.err
    assert process.poll() is None


def test_force_ends_a_process_that_does_not_end(
    shell: Shell, processes: list[subprocess.Popen[str]]
) -> None:
    process = started(processes, ENDS_WHEN_TOLD)
    with fake_cluster({**ANSWERS, "DELETE /cluster": {}}) as cluster:
        write(cluster.address, "nightly", process.pid)
        stopped = shell("cluster", "stop", "nightly", "--timeout", "0.01", "--force")
        assert stopped.code == 0
    assert process.wait() == -signal.SIGTERM


def test_force_kills_a_process_that_ignores_its_end(
    shell: Shell, processes: list[subprocess.Popen[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.cli.daemon.local_process._FORCE_TIMEOUT_S", 0.2)
    process = started(processes, STAYS, prints=True)
    with fake_cluster({**ANSWERS, "DELETE /cluster": {}}) as cluster:
        write(cluster.address, "nightly", process.pid)
        stopped = shell("cluster", "stop", "nightly", "--timeout", "0.01", "--force")
        assert stopped.code == 0 and "SIGKILL" in stopped.err
    assert process.wait() == -signal.SIGKILL


def test_force_ends_the_process_of_a_cluster_that_does_not_listen(
    shell: Shell, processes: list[subprocess.Popen[str]]
) -> None:
    process = started(processes, ENDS_WHEN_TOLD)
    with fake_cluster({}) as cluster:
        address = cluster.address
    write(address, "nightly", process.pid)
    stopped = shell("cluster", "stop", "nightly", "--timeout", "0.01", "--force")
    assert stopped.code == 0, stopped.err
    assert process.wait() == -signal.SIGTERM


def test_another_process_with_the_number_of_a_cluster_s_is_left_alone(
    shell: Shell, processes: list[subprocess.Popen[str]]
) -> None:
    process = started(processes, ENDS_WHEN_TOLD)
    file = write("http://127.0.0.1:8081", "nightly", process.pid)
    connection = json.loads(file.read_text())
    file.write_text(json.dumps({**connection, "start_ticks": connection["start_ticks"] - 1}))
    refused = shell("cluster", "stop", "nightly", "--force")
    assert refused.code == 1 and "no cluster of yours called 'nightly'" in refused.err
    assert process.poll() is None
    assert list(connections_folder().iterdir()) == []
