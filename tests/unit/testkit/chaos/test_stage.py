"""The stage of a run: when a job has stalled."""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.core.lifecycle import JobStatus
from testkit.chaos import stage
from testkit.chaos.digest_job import DigestJob
from testkit.chaos.stage import Stage, StalledError


class UncommittedJob:
    """Commits nothing, and ends after some looks at it."""

    def __init__(self, look_count: int) -> None:
        self._looks = iter([False] * look_count)

    def get_job_execution_result(self) -> "UncommittedJob":
        return self

    def done(self) -> bool:
        return next(self._looks, True)

    def result(self, timeout_s: float) -> None:
        """It ended well."""

    def get_job_details(self) -> Any:
        details = SimpleNamespace(status=JobStatus.RESTARTING, explanation="")
        return SimpleNamespace(result=lambda timeout_s: details)


@pytest.fixture
def impatient_stage(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Stage]:
    """For which a job stalls at once."""
    monkeypatch.setattr(stage, "STALLED_AFTER_S", 0.0)
    monkeypatch.setattr(stage, "_POLL_S", 0.0)
    yield Stage(tmp_path, 1, DigestJob(count=10, key_count=1), {}, timeout_s=60)


def test_a_job_that_runs_and_commits_nothing_has_stalled(impatient_stage: Stage) -> None:
    client: Any = UncommittedJob(1_000_000)
    with pytest.raises(StalledError, match="nothing was committed"):
        impatient_stage.finish(client)


def test_a_job_that_recovers_has_not_stalled(impatient_stage: Stage) -> None:
    impatient_stage.watch.is_recovering = True
    client: Any = UncommittedJob(100)
    impatient_stage.finish(client)
    assert client.done()
