"""A cluster that someone ends over REST who did not start it."""

from pathlib import Path

import pytest

from headrace.core.errors import HeadraceError
from headrace.rest.client import RestClient
from headrace.rest.home.connections import find_connection
from headrace.testing.minicluster_executor import MiniClusterExecutor
from testkit.waiting import wait_until
from tests.integration.rest.counting_program import SETTINGS, Program, await_running, completed

pytestmark = pytest.mark.integration


def test_the_cluster_is_ended_by_someone_else_and_checkpoints_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_HOME", str(tmp_path / "home"))
    with MiniClusterExecutor(slot_count=2, settings=SETTINGS):
        found = find_connection(None, print).connection
        rest = RestClient(found.address, found.token)
        program = Program("ended with its cluster", tmp_path)
        await_running(rest, program.job)
        trigger = rest.post(f"{program.job}/checkpoints", {})["request-id"]
        completed(rest, f"{program.job}/checkpoints/{trigger}")
        rest.delete("/cluster")
        wait_until(lambda: rest.get(f"{program.job}/status")["status"] == "CANCELED")
        with pytest.raises(HeadraceError, match="a client has ended this cluster"):
            Program("one more", tmp_path)
    assert list((tmp_path / "checkpoints").glob("*/chk-*/_metadata"))
