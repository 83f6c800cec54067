"""`headrace shuffle-service`: its help, its secret, and what it refuses before it listens."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from headrace.cli.main import cli
from headrace.cli.shuffle_service import shuffle_service
from headrace.core.cluster_secret import cluster_secret
from headrace.core.config import Settings
from headrace.core.errors import ConfigurationError


def test_the_command_is_listed_and_explains_itself() -> None:
    runner = CliRunner()
    assert "shuffle-service" in runner.invoke(cli, ["--help"]).output
    text = runner.invoke(cli, ["shuffle-service", "--help"]).output
    assert "--directory" in text and "shuffle-service.address" in text


def test_a_setting_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    arguments = ["--directory", str(tmp_path), "--secret-file", str(tmp_path / "secret")]
    result = CliRunner().invoke(shuffle_service, [*arguments, "-D", "shuffle-service.leas=1 s"])
    assert result.exit_code == 2 and "shuffle-service.lease" in result.output


def test_a_secret_that_is_not_there_is_made_for_its_owner_alone(tmp_path: Path) -> None:
    secret = tmp_path / "deep" / "secret"
    arguments = ["--directory", str(tmp_path / "results"), "--secret-file", str(secret)]
    with pytest.raises(ConfigurationError):
        CliRunner().invoke(
            shuffle_service, [*arguments, "--port", "no port"], catch_exceptions=False
        )
    assert secret.stat().st_mode & 0o777 == 0o600
    made = cluster_secret(Settings({"headrace.security.secret-file": str(secret)}))
    assert made.hex() == secret.read_text().strip()


def test_beyond_this_host_it_wants_an_identity(tmp_path: Path) -> None:
    arguments = ["--directory", str(tmp_path), "--secret-file", str(tmp_path / "secret")]
    with pytest.raises(ConfigurationError, match=r"security\.ssl\.internal"):
        CliRunner().invoke(
            shuffle_service, [*arguments, "--host", "0.0.0.0"], catch_exceptions=False
        )
