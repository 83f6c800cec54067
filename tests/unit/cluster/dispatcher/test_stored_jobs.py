"""Stored jobs of leaders that follow on each other, where one is frozen as it forgets a job that it has refused."""

import asyncio
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, cast

import pytest

from headrace.checkpoint.errors import CheckpointStorageError
from headrace.cluster.dispatcher.stored_jobs import StoredJobs
from headrace.cluster.high_availability.high_availability_services import HighAvailabilityServices
from headrace.core.clock import ManualClock
from headrace.core.config import Settings
from headrace.core.errors import ProgramError
from headrace.core.ids import JobId
from headrace.core.threads import run_in_thread
from headrace.graph.job_graph import JobGraph

GRAPH: Final = JobGraph(JobId(b"j" * 16), "job", (), (), {})
REFUSED: Final = ProgramError("it cannot run")

Lead = Callable[[], StoredJobs]


@pytest.fixture
def lead(tmp_path: Path) -> Lead:
    """Take the leadership over. Whoever led before does not notice: its clock stands still, as in a frozen process."""
    settings = Settings(
        {
            "high-availability.type": "file",
            "high-availability.storageDir": str(tmp_path / "storage"),
            "headrace.checkpoint.key-file": str(tmp_path / "key"),
        }
    )

    def follow() -> StoredJobs:
        clock, chance = ManualClock(0), random.Random()
        services = HighAvailabilityServices(settings, clock, chance)
        services.election.step()
        if not services.election.epoch:
            clock.advance_ms(6_001)
            services.election.step()
        leadership = services.election.leadership
        assert leadership is not None
        return StoredJobs(
            services, leadership, cast("Any", None), settings, clock, chance, run_in_thread
        )

    return follow


def jobs_of(stored: StoredJobs) -> list[JobGraph]:
    return [one.graph for one in asyncio.run(stored.recover()).jobs]


def files_of(folder: Path) -> list[str]:
    found = (folder / "storage").rglob("*")
    return [str(path) for path in found if GRAPH.job_id.hex() in str(path)]


def test_a_refused_job_leaves_nothing(lead: Lead, tmp_path: Path) -> None:
    leader = lead()
    for _ in range(2):
        asyncio.run(leader.put(GRAPH, 1))
        asyncio.run(leader.remove(GRAPH, REFUSED))
        assert files_of(tmp_path) == []
    assert jobs_of(lead()) == []


def test_a_leader_that_freezes_as_it_refuses_a_job_takes_it_from_no_later_one(lead: Lead) -> None:
    frozen = lead()
    asyncio.run(frozen.put(GRAPH, 1))
    assert jobs_of(lead()) == [GRAPH]
    asyncio.run(frozen.remove(GRAPH, REFUSED))
    assert jobs_of(lead()) == [GRAPH]


def test_a_job_that_was_not_forgotten_whole_runs_when_it_is_submitted_again(
    lead: Lead, monkeypatch: pytest.MonkeyPatch
) -> None:
    leader = lead()
    asyncio.run(leader.put(GRAPH, 1))

    def fail(*_: object) -> None:
        raise CheckpointStorageError("delete", "there", "no answer")

    with monkeypatch.context() as patched:
        patched.setattr(leader._graphs, "remove", fail)
        asyncio.run(leader.remove(GRAPH, REFUSED))
    asyncio.run(leader.put(GRAPH, 2))
    assert jobs_of(lead()) == [GRAPH]


def test_a_job_whose_refusing_leader_dies_is_refused_by_the_next_one(
    lead: Lead, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leader = lead()
    asyncio.run(leader.put(GRAPH, 1))

    def fail(*_: object) -> None:
        raise CheckpointStorageError("delete", "there", "no answer")

    monkeypatch.setattr(leader._graphs, "remove", fail)
    asyncio.run(leader.remove(GRAPH, REFUSED))
    recovered = asyncio.run(lead().recover())
    assert recovered.jobs == []
    (ended,) = recovered.ended
    assert ended.result.failure is not None
    assert "it cannot run" in ended.result.failure.text
    assert files_of(tmp_path) == []
