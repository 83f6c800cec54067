"""A session that SIGTERM ends says what becomes of its jobs."""

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.cli.cluster.session import serve_session
from headrace.cluster.high_availability.lease import LeaderRecord
from headrace.core.config import Settings

HIGHLY_AVAILABLE = {"high-availability.type": "file"}


class TerminatedCluster:
    """A cluster whose process gets SIGTERM, before it leads or after it."""

    def __init__(self, *, leads: bool) -> None:
        self._leads = leads

    def start(self, stands_by: Callable[[LeaderRecord | None], None]) -> None:
        if not self._leads:
            os.kill(os.getpid(), signal.SIGTERM)

    def wait(self) -> None:
        os.kill(os.getpid(), signal.SIGTERM)

    def close(self) -> None:
        pass


@pytest.mark.parametrize(
    ("settings", "leads", "text"),
    [
        ({}, True, "terminated: the jobs end, and their last checkpoints are kept"),
        (
            HIGHLY_AVAILABLE,
            True,
            "terminated: the jobs go on from their last checkpoints as soon as another driver leads",
        ),
        (HIGHLY_AVAILABLE, False, "terminated"),
    ],
)
def test_its_log_tells_whether_they_go_on(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    settings: dict[str, str],
    leads: bool,
    text: str,
) -> None:
    monkeypatch.setenv("HEADRACE_HOME", str(tmp_path))

    def create(*_: object) -> TerminatedCluster:
        return TerminatedCluster(leads=leads)

    code = serve_session(Settings(settings), "nightly", None, lambda _: None, create)  # pyright: ignore[reportArgumentType]  # a stand-in
    assert (code, caplog.messages) == (0, [text])
