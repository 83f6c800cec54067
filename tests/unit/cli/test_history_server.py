"""`headrace history-server`: its help, and what it refuses before it listens."""

import socket
from pathlib import Path

import pytest
from click.testing import CliRunner

from headrace.cli.history_server import history_server
from headrace.cli.main import cli
from headrace.core.errors import PortInUseError


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_HOME", str(tmp_path / "home"))


def test_the_command_is_listed_and_explains_itself() -> None:
    runner = CliRunner()
    assert "history-server" in runner.invoke(cli, ["--help"]).output
    text = runner.invoke(cli, ["history-server", "--help"]).output
    assert "FOLDERS" in text and "jobmanager.archive.fs.dir" in text


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "name the folders to which clusters write their archives"),
        (["/a", "-D", "historyserver.archive.retained-job=3"], "retained-jobs"),
        (
            ["/a", "-D", "historyserver.archive.retained-jobs=0"],
            "it must be at least 1, or -1 for all",
        ),
        (["/a", "-D", "historyserver.archive.retained-ttl=0 s"], "longer than 0"),
        (["/a", "--port", "none"], "historyserver.web.port"),
    ],
)
def test_what_cannot_be_is_wrong_usage(arguments: list[str], told: str) -> None:
    result = CliRunner().invoke(history_server, arguments)
    assert (result.exit_code, told in result.output) == (2, True), result.output


def test_a_port_in_use_is_told_by_its_setting() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        with pytest.raises(PortInUseError, match=r"historyserver\.web\.port"):
            CliRunner().invoke(history_server, ["/a", "--port", port], catch_exceptions=False)


def test_beyond_this_host_it_wants_an_identity() -> None:
    asked = ["/a", "--port", "0", "-D", "historyserver.web.address=0.0.0.0"]
    result = CliRunner().invoke(history_server, asked)
    assert (result.exit_code, "beyond this host REST requires TLS" in result.output) == (2, True)
