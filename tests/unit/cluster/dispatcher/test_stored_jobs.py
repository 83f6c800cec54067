"""Stored jobs of leaders that follow on each other, where one is frozen as it forgets a job that it has refused."""

import asyncio
import errno
import os
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
from headrace.core.lifecycle import JobStatus
from headrace.core.threads import run_in_thread
from headrace.gateways.dispatcher import JobResult
from headrace.graph.job_graph import JobGraph

GRAPH: Final = JobGraph(JobId(b"j" * 16), "job", (), (), {})
REFUSED: Final = ProgramError("it cannot run")
FINISHED: Final = JobResult(GRAPH.job_id, "job", JobStatus.FINISHED, 5, {})

Lead = Callable[[], StoredJobs]


@pytest.fixture
def options(request: pytest.FixtureRequest) -> dict[str, str]:
    return getattr(request, "param", {})


@pytest.fixture
def lead(tmp_path: Path, options: dict[str, str]) -> Lead:
    """Take the leadership over. Whoever led before does not notice: its clock stands still, as in a frozen process."""
    settings = Settings(
        {
            "high-availability.type": "file",
            "high-availability.storageDir": str(tmp_path / "storage"),
            "headrace.checkpoint.key-file": str(tmp_path / "key"),
            **options,
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


def fail(*_: object) -> None:
    """Do as a storage that does not answer does."""
    raise CheckpointStorageError("delete", "there", "no answer")


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

    monkeypatch.setattr(leader._graphs, "remove", fail)
    asyncio.run(leader.remove(GRAPH, REFUSED))
    recovered = asyncio.run(lead().recover())
    assert recovered.jobs == []
    (ended,) = recovered.ended
    assert ended.result.failure is not None
    assert "it cannot run" in ended.result.failure.text
    assert files_of(tmp_path) == []


def test_a_refusal_that_comes_late_does_not_end_the_job_of_a_later_leader(
    lead: Lead, monkeypatch: pytest.MonkeyPatch
) -> None:
    frozen: Any = lead()
    second = lead()
    assert jobs_of(second) == []
    # The client, which has had no answer, brings the job to the next leader.
    asyncio.run(second.put(GRAPH, 1))
    create = frozen._results.create_dirty

    def create_late(*given: object) -> bool:
        created = create(*given)
        frozen._leadership._clock.advance_ms(600_000)
        return created

    monkeypatch.setattr(frozen._results, "create_dirty", create_late)
    asyncio.run(frozen.remove(GRAPH, REFUSED))
    assert jobs_of(lead()) == [GRAPH]


def test_a_refusal_that_comes_late_does_not_delete_the_result_of_a_later_leader(lead: Lead) -> None:
    frozen, second = lead(), lead()
    assert jobs_of(second) == []
    asyncio.run(second.put(GRAPH, 1))
    asyncio.run(second.job_terminal(FINISHED, keeps_latest=False))
    asyncio.run(frozen.remove(GRAPH, REFUSED))
    recovered = asyncio.run(lead().recover())
    assert recovered.jobs == []
    assert [one.result for one in recovered.ended] == [FINISHED]


def test_a_refused_job_ends_when_it_is_submitted_again_where_files_have_no_links(
    lead: Lead, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_links(*_: object) -> None:
        raise OSError(errno.EPERM, "no links here")

    leader = lead()
    monkeypatch.setattr(os, "link", no_links)
    asyncio.run(leader.put(GRAPH, 1))
    asyncio.run(leader.remove(GRAPH, REFUSED))
    assert files_of(tmp_path) == []
    asyncio.run(leader.put(GRAPH, 2))
    asyncio.run(leader.job_terminal(FINISHED, keeps_latest=False))
    assert [one.result for one in asyncio.run(lead().recover()).ended] == [FINISHED]


def test_the_next_leader_tells_of_a_refused_job_whose_graph_alone_is_gone(
    lead: Lead, monkeypatch: pytest.MonkeyPatch
) -> None:
    leader = lead()
    asyncio.run(leader.put(GRAPH, 1))

    monkeypatch.setattr(leader._results, "take_back", fail)
    asyncio.run(leader.remove(GRAPH, REFUSED))
    (ended,) = asyncio.run(lead().recover()).ended
    assert ended.result.failure is not None
    assert "it cannot run" in ended.result.failure.text


def damage_graph(folder: Path) -> Path:
    (graph,) = (folder / "storage").rglob("graph")
    graph.write_bytes(b"?" + graph.read_bytes())
    return graph


def test_a_job_whose_graph_cannot_be_read_ends_and_keeps_its_files(
    lead: Lead, tmp_path: Path
) -> None:
    asyncio.run(lead().put(GRAPH, 1))
    graph = damage_graph(tmp_path)
    leader = lead()
    recovered = asyncio.run(leader.recover())
    assert (recovered.jobs, recovered.ended) == ([], [])
    (unreadable,) = recovered.unreadable
    assert unreadable.job_id == GRAPH.job_id
    failed = JobResult(GRAPH.job_id, "job", JobStatus.FAILED, 0, {})
    asyncio.run(leader.job_terminal(failed, keeps_latest=True))
    for _ in range(2):
        recovered = asyncio.run(lead().recover())
        assert [one.result for one in recovered.ended] == [failed]
        assert (recovered.jobs, recovered.unreadable) == ([], [])
    # Whoever can read it finds that it has ended, and deletes what is left of it.
    graph.write_bytes(graph.read_bytes()[1:])
    assert jobs_of(lead()) == []
    assert files_of(tmp_path) == []


def test_memory_keeps_nothing_of_a_job_of_which_nothing_is_left(lead: Lead) -> None:
    leader = lead()
    asyncio.run(leader.put(GRAPH, 1))
    follower = lead()
    assert jobs_of(follower) == [GRAPH]
    others = [JobId(bytes([number]) * 16) for number in range(3)]
    for job_id in others:
        asyncio.run(follower.put(JobGraph(job_id, "job", (), (), {}), 1))
    for job_id in (GRAPH.job_id, *others):
        ended = JobResult(job_id, "job", JobStatus.FINISHED, 5, {})
        asyncio.run(follower.job_terminal(ended, keeps_latest=False))
        assert asyncio.run(follower.status_of_ended(job_id)) is JobStatus.FINISHED
        asyncio.run(follower.clean_up(job_id, None))
        assert asyncio.run(follower.status_of_ended(job_id)) is None
    assert (follower._ended, follower._stored_epochs) == ({}, {})


@pytest.mark.parametrize("options", [{"job-result-store.delete-on-commit": "false"}], indirect=True)
def test_a_job_whose_result_is_kept_never_runs_again(lead: Lead) -> None:
    leader = lead()
    asyncio.run(leader.put(GRAPH, 1))
    asyncio.run(leader.job_terminal(FINISHED, keeps_latest=False))
    asyncio.run(leader.clean_up(GRAPH.job_id, None))
    assert leader._ended == {}
    for later in (leader, lead()):
        assert asyncio.run(later.status_of_ended(GRAPH.job_id)) is JobStatus.FINISHED


def test_an_ended_job_whose_options_are_refused_is_forgotten_by_the_next_leader(
    lead: Lead, tmp_path: Path
) -> None:
    refused = JobGraph(GRAPH.job_id, "job", (), (), {"execution.checkpointing.num-retained": "0"})
    leader = lead()
    asyncio.run(leader.put(refused, 1))
    asyncio.run(leader.job_terminal(FINISHED, keeps_latest=True))
    recovered = asyncio.run(lead().recover())
    assert (recovered.jobs, recovered.unclean) == ([], [])
    assert not any(name.endswith("/graph") for name in files_of(tmp_path))
