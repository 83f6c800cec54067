"""Connection files: who may have written them, which cluster is meant, and what happens to those of dead processes."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from headrace.core.errors import ConfigurationError
from headrace.core.process.process_start import process_start_ms, start_ticks
from headrace.rest.client_errors import (
    ConnectionFileError,
    HomeFolderError,
    NoClusterError,
    NoSuchClusterError,
    SeveralClustersError,
)
from headrace.rest.home.connections import (
    ClusterConnection,
    connection_in,
    find_connection,
    find_named,
    find_session,
    has_ended,
    live_addresses,
    live_connections,
    read_connection,
    remove_connection,
    write_connection,
)
from testkit.waiting import wait_until

STARTED = process_start_ms(os.getpid()) + 1_000
NAMED = ClusterConnection("http://127.0.0.1:8081", "secret", os.getpid(), "departures", STARTED)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HEADRACE_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("HEADRACE_TOKEN", raising=False)
    return tmp_path / "home"


def silent(text: str) -> None:
    raise AssertionError(f"nothing is to be told: {text}")


def dead_pid() -> int:
    process = subprocess.Popen([sys.executable, "-c", "pass"])
    process.wait()
    return process.pid


def test_what_a_cluster_wrote_is_found_without_an_address(home: Path) -> None:
    file = write_connection(NAMED)
    assert file == home / "clusters" / "8081.json"
    found = find_connection(None, silent)
    assert (found.connection, found.token_from, found.file) == (NAMED, str(file), file)


def test_the_file_and_its_folder_are_for_their_owner_alone(home: Path) -> None:
    file = write_connection(NAMED)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert [one.name for one in file.parent.iterdir()] == ["8081.json"]


def test_the_certificate_that_was_copied_with_a_file_is_the_one_beside_it(tmp_path: Path) -> None:
    written = ClusterConnection("https://far.example.org:8081", "secret", ca_file="8081.pem")
    copied = write_connection(written).rename(tmp_path / "nightly.json")
    assert connection_in(copied).connection.ca_file == str(tmp_path / "8081.pem")
    whole = msgspec.structs.replace(written, ca_file="/etc/ssl/own.pem")
    assert read_connection(write_connection(whole)).ca_file == "/etc/ssl/own.pem"


def test_the_token_is_not_shown() -> None:
    assert "secret" not in repr(NAMED)


@pytest.mark.parametrize(
    "address", ["127.0.0.1:8081", "localhost:8081", "http://127.0.0.1:8081/", "[::1]:8081"]
)
def test_an_address_finds_the_file_of_its_port(address: str) -> None:
    write_connection(NAMED)
    write_connection(ClusterConnection("http://127.0.0.1:8082", "other", os.getpid()))
    assert find_connection(address, silent).connection == NAMED


def test_several_clusters_and_no_address_are_an_error_that_lists_them() -> None:
    write_connection(NAMED)
    write_connection(ClusterConnection("http://127.0.0.1:8082", "other", os.getpid(), "arrivals"))
    with pytest.raises(SeveralClustersError) as raised:
        find_connection(None, silent)
    assert str(raised.value).splitlines() == [
        "2 clusters run on this machine: select one with -m",
        "  -m 127.0.0.1:8081  departures",
        "  -m 127.0.0.1:8082  arrivals",
    ]
    assert live_addresses() == ["127.0.0.1:8081", "127.0.0.1:8082"]


def test_drivers_of_one_cluster_are_one_cluster_and_the_newest_lease_is_meant() -> None:
    drivers = [
        ClusterConnection(
            f"http://127.0.0.1:{8081 + number}", "t", os.getpid(), name, is_session=True,
            cluster_id="/ha/test", epoch=epoch,
        )
        for number, (name, epoch) in enumerate([("frozen", 5), ("leader", 7), ("standby", 0)])
    ]  # fmt: skip
    for driver in drivers:
        write_connection(driver)
    assert find_connection(None, silent).connection == drivers[1]
    assert find_session(None, silent).connection == drivers[1]
    assert find_named("standby", silent).connection == drivers[2]
    assert find_connection("127.0.0.1:8081", silent).connection == drivers[0]
    write_connection(
        msgspec.structs.replace(drivers[0], address="http://127.0.0.1:9", cluster_id="")
    )
    with pytest.raises(SeveralClustersError, match="2 clusters"):
        find_connection(None, silent)


def test_where_epochs_begin_again_in_an_emptied_storage_the_driver_that_started_last_is_meant() -> (
    None
):
    leader, frozen, largest = (
        ClusterConnection(
            f"http://127.0.0.1:{port}", "t", os.getpid(), started=STARTED + started, is_session=True,
            cluster_id="/ha/test", epoch=epoch,
        )
        for port, started, epoch in [(8081, 9, 1), (8082, 8, 1), (8083, 7, 2)]
    )  # fmt: skip
    write_connection(leader)
    write_connection(frozen)
    assert find_session(None, silent).connection == leader
    write_connection(largest)
    assert find_session(None, silent).connection == largest


def test_a_history_server_is_found_by_its_address_or_where_no_cluster_is() -> None:
    history = msgspec.structs.replace(NAMED, address="http://127.0.0.1:8082", is_history=True)
    write_connection(history)
    assert find_connection(None, silent).connection == history
    write_connection(NAMED)
    assert find_connection(None, silent).connection == NAMED
    assert find_connection("127.0.0.1:8082", silent).connection == history


def test_no_cluster_is_an_error_that_says_what_to_do() -> None:
    with pytest.raises(NoClusterError, match="start a job with 'headrace run'"):
        find_connection(None, silent)


def test_the_file_of_a_dead_process_is_removed_with_a_word(home: Path) -> None:
    pid = dead_pid()
    file = write_connection(ClusterConnection("http://127.0.0.1:8081", "old", pid))
    for suffix in (".html", ".pem"):
        file.with_suffix(suffix).touch()
    said: list[str] = []
    with pytest.raises(NoClusterError):
        find_connection(None, said.append)
    assert list(file.parent.iterdir()) == []
    assert said == [
        f"removed {file}: the cluster at http://127.0.0.1:8081 has ended (process {pid})"
    ]


def test_the_process_of_a_cluster_on_another_machine_is_not_looked_for() -> None:
    file = write_connection(ClusterConnection("https://far.example.org:8081", "t", dead_pid()))
    assert find_connection(None, silent).file == file


def test_a_file_that_others_may_read_is_refused_and_stays() -> None:
    file = write_connection(NAMED)
    file.chmod(0o640)
    for address in (None, "127.0.0.1:8081"):
        with pytest.raises(ConnectionFileError, match="users other than its owner may read it"):
            find_connection(address, silent)
    assert file.exists()


def test_a_file_of_another_user_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    file = write_connection(NAMED)
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(ConnectionFileError, match=r"another user \(\d+\) owns the file"):
        read_connection(file)


def test_a_folder_that_others_may_look_into_is_refused() -> None:
    file = write_connection(NAMED)
    file.parent.chmod(0o755)
    with pytest.raises(ConnectionFileError, match="chmod 700"):
        find_connection(None, silent)
    with pytest.raises(ConnectionFileError, match="chmod 700"):
        write_connection(NAMED)


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    file = write_connection(NAMED)
    elsewhere = tmp_path / "elsewhere.json"
    file.rename(elsewhere)
    file.symlink_to(elsewhere)
    with pytest.raises(ConnectionFileError, match="cannot be read"):
        read_connection(file)


def test_a_link_in_the_place_of_a_new_file_is_replaced_and_not_written_through(
    tmp_path: Path,
) -> None:
    file = write_connection(NAMED)
    victim = tmp_path / "victim"
    victim.write_text("precious")
    file.unlink()
    file.symlink_to(victim)
    write_connection(NAMED)
    assert victim.read_text() == "precious"
    assert read_connection(file) == NAMED


def test_a_pipe_in_the_place_of_a_file_does_not_hold_anybody_up() -> None:
    file = write_connection(NAMED)
    file.unlink()
    os.mkfifo(file, 0o600)
    with pytest.raises(ConnectionFileError, match="not a regular file"):
        read_connection(file)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b'{"token": "x"}',
        b'{"address": 7}',
        b'{"address": "ftp://127.0.0.1:8081"}',
        b'{"address": "http://127.0.0.1:99999"}',
        b'{"address": "http://me:word@127.0.0.1:8081"}',
        b"\xff",
    ],
)
def test_a_damaged_file_is_refused_by_name(content: bytes) -> None:
    file = write_connection(NAMED)
    file.write_bytes(content)
    with pytest.raises(ConnectionFileError, match="damaged") as raised:
        read_connection(file)
    assert raised.value.file == file


def test_one_bad_file_does_not_hide_the_good_one() -> None:
    bad = write_connection(ClusterConnection("http://127.0.0.1:8082", "other", os.getpid()))
    bad.write_bytes(b"{")
    write_connection(NAMED)
    said: list[str] = []
    assert find_connection(None, said.append).connection == NAMED
    assert "8082.json is not used: the file is damaged" in said[0]


def test_an_address_without_a_file_has_the_token_of_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = find_connection("127.0.0.1:9000", silent)
    assert (found.connection.address, found.connection.token) == ("http://127.0.0.1:9000", "")
    monkeypatch.setenv("HEADRACE_TOKEN", "given")
    found = find_connection("127.0.0.1:9000", silent)
    assert (found.connection.token, found.token_from) == ("given", "HEADRACE_TOKEN")
    assert find_connection("far:9000", silent).connection.address == "https://far:9000"


@pytest.mark.parametrize("address", [None, "127.0.0.1:8081"])
def test_the_token_of_the_environment_counts_before_that_of_a_file(
    monkeypatch: pytest.MonkeyPatch, address: str | None
) -> None:
    file = write_connection(NAMED)
    monkeypatch.setenv("HEADRACE_TOKEN", " given\n")
    for found in (find_connection(address, silent), find_named("departures", silent)):
        assert (found.connection.token, found.token_from) == ("given", "HEADRACE_TOKEN")
        assert (found.connection.address, found.file) == (NAMED.address, file)
        assert not has_ended(found)
    assert connection_in(file).connection == NAMED, "a file that is named is meant"


@pytest.mark.parametrize("address", ["nonsense", "host:port", "ftp://host:1", "host", "a:b:c", ""])
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(ConfigurationError, match="host:port"):
        find_connection(address, silent)


def test_a_cluster_has_ended_once_its_file_or_its_process_is_gone() -> None:
    file = write_connection(NAMED)
    found = find_connection(None, silent)
    assert not has_ended(found)
    write_connection(ClusterConnection("http://127.0.0.1:8081", "next", os.getpid()))
    assert has_ended(found)
    assert not has_ended(find_connection(None, silent))
    file.unlink()
    assert has_ended(found)
    assert not has_ended(find_connection("127.0.0.1:8081", silent))


def test_a_cluster_removes_its_own_file_and_not_that_of_the_next_one() -> None:
    file = write_connection(NAMED)
    file.with_suffix(".html").touch()
    remove_connection(file)
    assert list(file.parent.iterdir()) == []
    remove_connection(file)
    write_connection(ClusterConnection("http://127.0.0.1:8081", "next", os.getppid()))
    remove_connection(file)
    assert file.exists()


def test_a_file_that_a_new_cluster_wrote_over_a_dead_one_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file = write_connection(ClusterConnection("http://127.0.0.1:8081", "old", dead_pid()))

    def starts_meanwhile(pid: int, signal: int) -> None:
        write_connection(NAMED)
        raise ProcessLookupError

    monkeypatch.setattr(os, "kill", starts_meanwhile)
    with pytest.raises(NoClusterError):
        find_connection(None, lambda _: None)
    assert read_connection(file) == NAMED


def test_a_later_process_with_the_number_of_a_cluster_s_is_not_taken_for_it() -> None:
    own = msgspec.structs.replace(NAMED, start_ticks=start_ticks(os.getpid()))
    write_connection(own)
    assert find_connection(None, silent).connection == own
    write_connection(msgspec.structs.replace(own, start_ticks=own.start_ticks + 1))
    told: list[str] = []
    with pytest.raises(NoClusterError):
        find_connection(None, told.append)
    assert [line for line in told if "has ended" in line] == told != []


def test_without_the_start_of_its_process_the_time_tells_a_later_one_with_its_number() -> None:
    pid, now_ms = os.getpid(), process_start_ms(os.getpid())
    lives = ClusterConnection("http://127.0.0.1:8081", "t", pid, "lives", started=now_ms - 30_000)
    write_connection(lives)
    assert find_connection(None, silent).connection == lives
    write_connection(msgspec.structs.replace(lives, started=now_ms - 3_600_000))
    told: list[str] = []
    with pytest.raises(NoClusterError):
        find_connection(None, told.append)
    assert ["has ended" in line for line in told] == [True]


def test_a_process_of_another_user_or_one_that_nobody_has_reaped_is_no_cluster_of_ours(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with subprocess.Popen([sys.executable, "-c", "pass"]) as process:
        wait_until(lambda: start_ticks(process.pid) == 0, what="its end")
        write_connection(ClusterConnection("http://127.0.0.1:8081", "t", process.pid))
        assert live_connections(lambda _: None) == ([], [])

    def refuse(pid: int, signal: int) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "kill", refuse)
    write_connection(ClusterConnection("http://127.0.0.1:8081", "t", os.getppid()))
    assert live_connections(lambda _: None) == ([], [])


def clusters(*named: tuple[int, str, bool]) -> None:
    for port, name, is_session in named:
        write_connection(
            ClusterConnection(
                f"http://127.0.0.1:{port}", "t", os.getpid(), name, is_session=is_session
            )
        )


def test_a_cluster_is_found_by_its_name() -> None:
    clusters((8081, "departures", False), (8082, "nightly", True))
    assert find_named("departures", silent).connection.address == "http://127.0.0.1:8081"
    with pytest.raises(NoSuchClusterError, match=r"called 'daily'.* there is departures, nightly"):
        find_named("daily", silent)


def test_the_only_session_is_found_beside_programs_that_have_clusters_of_their_own() -> None:
    clusters((8081, "departures", False), (8082, "nightly", True))
    assert find_session(None, silent).connection.name == "nightly"
    with pytest.raises(NoSuchClusterError, match="no session of yours called 'departures'"):
        find_session("departures", silent)


def test_several_sessions_and_no_name_are_an_error_that_lists_them() -> None:
    clusters((8081, "daily", True), (8082, "nightly", True))
    with pytest.raises(SeveralClustersError, match=r"8081  daily\n.*8082  nightly"):
        find_session(None, silent)
    assert find_session("daily", silent).connection.name == "daily"


def test_no_session_is_an_error_that_says_how_to_start_one() -> None:
    with pytest.raises(NoSuchClusterError, match="headrace cluster start'"):
        find_session(None, silent)


def test_a_default_folder_that_cannot_be_made_is_told_with_the_variable_for_another_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".headrace").write_text("a file")
    monkeypatch.delenv("HEADRACE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(HomeFolderError) as raised:
        write_connection(ClusterConnection("http://127.0.0.1:8081", "t", os.getpid()))
    assert str(raised.value) == (
        f"the default folder ({tmp_path}/.headrace) cannot be used for connection files and logs: Not a directory; "
        "set HEADRACE_HOME to a folder in which this user alone may write"
    )
