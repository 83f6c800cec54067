"""A client of a cluster that does not answer says for whom it waits, and for how long."""

import logging
import socket
from pathlib import Path

import pytest

from headrace.cli.logs import configure_logs
from headrace.client.rest_cluster_client import RestClusterClient
from headrace.cluster.high_availability.coordination import open_coordination
from headrace.core.config import Settings
from headrace.core.randomness import system_random
from headrace.rest.client_errors import RestUnreachableError
from tests.unit.cli.restored_logs import restored_logs

SETTINGS = {"rest.retry.max-attempts": "4", "rest.retry.delay": "1 ms"}


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("HEADRACE_TOKEN", raising=False)


def test_the_first_refusal_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
    with RestClusterClient(address, settings=SETTINGS) as cluster:
        for _ in range(2):
            with pytest.raises(RestUnreachableError, match="after 4 attempts"):
                cluster.list_jobs()
    (message,) = [one for one in caplog.messages if "waiting" in one]
    assert message.startswith(
        "waiting for the cluster, at most 0.003 s (rest.retry.max-attempts, rest.retry.delay): "
        f"no cluster answers at http://{address}: nobody listens there"
    )


def test_that_nobody_leads_is_told_too(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    settings = Settings(
        {
            **SETTINGS,
            "high-availability.type": "file",
            "high-availability.storageDir": str(tmp_path / "ha"),
            "headrace.checkpoint.key-file": str(tmp_path / "key"),
        }
    )
    open_coordination(settings, system_random())
    with RestClusterClient.of_leader(settings) as cluster, pytest.raises(RestUnreachableError):
        cluster.list_jobs()
    (message,) = [one for one in caplog.messages if "waiting" in one]
    assert "no leader of the cluster is known" in message


def test_the_command_line_shows_it() -> None:
    with restored_logs():
        configure_logs(verbose=False)
        logger = logging.getLogger("headrace.client.rest_cluster_client")
        assert logger.isEnabledFor(logging.WARNING)
