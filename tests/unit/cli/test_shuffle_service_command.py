"""`headrace shuffle-service`: its help, its secret, and what it refuses before it listens."""

import signal
import socket
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any, Self

import pytest
from click.testing import CliRunner

from headrace.cli import shuffle_service as shuffle_service_command
from headrace.cli.main import cli
from headrace.cli.shuffle_service import shuffle_service
from headrace.core.config import Settings
from headrace.core.errors import ConfigurationError, PortInUseError
from headrace.core.security.cluster_secret import cluster_secret
from headrace.shuffle_service.process import ShuffleServiceProcess


def test_the_command_is_listed_and_explains_itself() -> None:
    runner = CliRunner()
    assert "shuffle-service" in runner.invoke(cli, ["--help"]).output
    text = runner.invoke(cli, ["shuffle-service", "--help"]).output
    assert "--directory" in text and "shuffle-service.address" in text


def test_a_setting_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    arguments = ["--directory", str(tmp_path), "--secret-file", str(tmp_path / "secret")]
    result = CliRunner().invoke(shuffle_service, [*arguments, "-D", "shuffle-service.leas=1 s"])
    assert result.exit_code != 0 and "shuffle-service.lease" in result.output


def test_a_secret_that_is_not_there_is_made_for_its_owner_alone(tmp_path: Path) -> None:
    secret = tmp_path / "deep" / "secret"
    arguments = ["--directory", str(tmp_path / "results"), "--secret-file", str(secret)]
    result = CliRunner().invoke(shuffle_service, [*arguments, "--port", "no port"])
    assert (
        result.exit_code != 0 and "Invalid value for '--port': it must be a port" in result.output
    )
    assert secret.stat().st_mode & 0o777 == 0o600
    made = cluster_secret(Settings({"headrace.security.secret-file": str(secret)}))
    assert made.hex() == secret.read_text().strip()


def test_beyond_this_host_it_wants_an_identity(tmp_path: Path) -> None:
    arguments = ["--directory", str(tmp_path), "--secret-file", str(tmp_path / "secret")]
    told = r"'headrace\.security\.identity-file' is not set: .* at 0\.0\.0\.0 .*security\.ssl\.internal"
    with pytest.raises(ConfigurationError, match=told):
        CliRunner().invoke(
            shuffle_service,
            [*arguments, "--host", "0.0.0.0", "--advertised-host", "shuffle-1"],
            catch_exceptions=False,
        )


def test_who_is_known_beyond_this_host_wants_an_identity_wherever_it_listens(
    tmp_path: Path,
) -> None:
    arguments = ["--directory", str(tmp_path), "--secret-file", str(tmp_path / "secret")]
    with pytest.raises(ConfigurationError, match="identity-file' is not set"):
        CliRunner().invoke(
            shuffle_service, [*arguments, "--advertised-host", "10.0.0.7"], catch_exceptions=False
        )


def test_a_name_by_which_nobody_comes_is_told_by_the_command_s_option(tmp_path: Path) -> None:
    arguments = ["--directory", str(tmp_path), "--secret-file", str(tmp_path / "secret")]
    result = CliRunner().invoke(shuffle_service, [*arguments, "--advertised-host", "0.0.0.0"])
    told = "Invalid value for '--advertised-host': other hosts cannot connect to this address"
    assert result.exit_code != 0 and told in result.output


def test_where_tls_is_asked_for_it_does_not_begin_without(tmp_path: Path) -> None:
    arguments = ["--directory", str(tmp_path), "--secret-file", str(tmp_path / "secret")]
    asked = ["-D", "security.ssl.internal.enabled=true", "--port", "no port"]
    with pytest.raises(ConfigurationError, match="identity-file' is not set"):
        CliRunner().invoke(shuffle_service, [*arguments, *asked], catch_exceptions=False)


def test_a_directory_that_cannot_be_used_is_told_by_the_command_s_option(tmp_path: Path) -> None:
    secret = ["--secret-file", str(tmp_path / "secret")]
    place = tmp_path / "file"
    place.write_text("mine")
    for directory in (place, Path("/proc/foo")):
        result = CliRunner().invoke(shuffle_service, ["--directory", str(directory), *secret])
        assert result.exit_code != 0 and "Invalid value for '--directory'" in result.output
        assert "io.tmp.dirs" not in result.output


@pytest.mark.parametrize("option", ["--port", "--data-port"])
def test_a_port_in_use_is_told_by_the_command_s_option(tmp_path: Path, option: str) -> None:
    arguments = ["--directory", str(tmp_path), "--secret-file", str(tmp_path / "secret")]
    ports = {"--port": "0", "--data-port": "0"}
    with socket.create_server(("127.0.0.1", 0)) as taken:
        ports[option] = str(taken.getsockname()[1])
        arguments += [each for pair in ports.items() for each in pair]
        with pytest.raises(PortInUseError, match=f"'{option}'"):
            CliRunner().invoke(shuffle_service, arguments, catch_exceptions=False)


def test_an_address_of_another_host_is_told_by_the_command_s_option(tmp_path: Path) -> None:
    arguments = ["--directory", str(tmp_path), "--secret-file", str(tmp_path / "secret")]
    allowed = ["-D", "security.ssl.internal.enabled=false"]
    allowed += ["-D", "headrace.security.allow-plaintext=true"]
    # Of the block that is kept for documentation: nobody's.
    result = CliRunner().invoke(shuffle_service, [*arguments, *allowed, "--host", "192.0.2.1"])
    assert result.exit_code != 0 and "Invalid value for '--host'" in result.output


def test_what_a_setting_said_is_told_by_the_setting_s_name(tmp_path: Path) -> None:
    arguments = ["--directory", str(tmp_path), "--secret-file", str(tmp_path / "secret")]
    with pytest.raises(ConfigurationError, match=r"'taskmanager\.data\.port' has the value 'x'"):
        CliRunner().invoke(
            shuffle_service,
            [*arguments, "--port", "0", "-D", "taskmanager.data.port=x"],
            catch_exceptions=False,
        )


@pytest.fixture
def as_before() -> Generator[None]:
    """Signals that the command ignores once it ends are this process's own again."""
    before = {one: signal.getsignal(one) for one in (signal.SIGTERM, signal.SIGINT)}
    yield
    for one, handler in before.items():
        signal.signal(one, handler)


@pytest.mark.usefixtures("as_before")
def test_a_service_that_has_failed_ends_with_its_cause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class FailingProcess(ShuffleServiceProcess):
        def __init__(
            self,
            settings: Settings,
            *,
            on_fatal_error: Callable[[BaseException], None],
            **given: Any,
        ) -> None:
            super().__init__(settings, on_fatal_error=on_fatal_error, **given)
            self._fail = on_fatal_error

        def __enter__(self) -> Self:
            entered = super().__enter__()
            self._fail(OSError("no disk"))
            return entered

    monkeypatch.setattr(shuffle_service_command, "ShuffleServiceProcess", FailingProcess)
    arguments = ["--directory", str(tmp_path), "--secret-file", str(tmp_path / "secret")]
    result = CliRunner().invoke(shuffle_service, arguments)
    assert result.exit_code == 1
    assert "failed and ends; its committed results are kept. OSError: no disk" in result.output
