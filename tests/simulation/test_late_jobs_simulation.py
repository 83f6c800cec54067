"""A leader that has looked whether it leads sleeps before it stores a job, for a time drawn from the seed.

Its client brings the job to the next leader. Whenever the first one writes, before that or after the job has ended and
was forgotten, all rows come out once, and nothing is left.
"""

import contextlib
import random
from collections import Counter
from pathlib import Path
from typing import Any, Final

import pytest

from headrace.cluster.blob.blob_client import prepare, submit_job
from headrace.cluster.high_availability.job_graph_store import JobGraphStore
from headrace.core.ids import JobId
from headrace.core.lifecycle import JobStatus
from headrace.gateways.blob_server import BlobServerGateway
from headrace.gateways.errors import DuplicateJobSubmissionError, NotLeadingError
from headrace.graph.job_graph import JobGraph
from headrace.rpc.errors import RecipientUnreachableError
from testkit.simulation.simulated_cluster import failure_note
from tests.integration.programs.committed_lines import committed_lines
from tests.simulation.rival_drivers import Driver, World, numbers_job
from tests.simulation.seeds import seeds

COUNT: Final = 40
_REFUSALS: Final = NotLeadingError, RecipientUnreachableError, DuplicateJobSubmissionError


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One test per seed, or only the seed that was asked for."""
    if "late_seed" in metafunc.fixturenames:
        seed = metafunc.config.getoption("--seed")
        metafunc.parametrize("late_seed", seeds(20) if seed is None else [seed])


def bring_without_waiting(driver: Driver, graph: JobGraph) -> None:
    """Submit a job to a driver that may not answer."""
    cluster = driver.cluster
    assert cluster is not None
    blob_server = cluster.cluster.blob_server.self_gateway(BlobServerGateway)

    async def submit() -> None:
        with contextlib.suppress(*_REFUSALS):
            await submit_job(prepared, cluster.dispatcher, blob_server, cluster.settings)

    prepared = prepare(graph, cluster.settings)
    cluster.cluster.leaders.spawn(submit(), "a client submits")


def bring(world: World, graph: JobGraph) -> None:
    """Submit a job to whoever leads, as a client that has no answer yet."""
    while True:
        leader = world.await_leader()
        assert leader.cluster is not None
        try:
            leader.cluster.submit(graph)
        except DuplicateJobSubmissionError:
            return
        except (NotLeadingError, RecipientUnreachableError):
            world.run_for(1_000)
        else:
            return


def play(folder: Path, seed: int) -> tuple[Counter[str], list[Path]]:
    """Return the output of a job that is stored late, and the files that are left of it when leaders have changed."""
    note, world = failure_note(seed), World(folder, seed)
    drawn: random.Random = world.drawn
    first = world.await_leader()
    graph = numbers_job(JobId.generate(drawn), folder / "lines", COUNT)
    first.storing_takes_ms = drawn.choice([5_000, 12_000, 30_000, 90_000])
    bring_without_waiting(first, graph)
    world.run_for(drawn.uniform(500, 15_000))
    bring(world, graph)
    assert world.await_end(graph.job_id) is JobStatus.FINISHED, note("the job did not finish")
    while first.sleeps_until_ms > world.now_ms:
        world.tick()
    world.run_for(10_000)
    for _ in range(2):
        leader = world.await_leader()
        leader.sleeps_until_ms = world.now_ms + 20_000
        world.run_for(drawn.uniform(1_000, 20_000))
    assert world.await_end(graph.job_id) is JobStatus.FINISHED
    world.run_for(40_000)
    job = graph.job_id.hex()
    left = [path for path in (folder / "ha").rglob("*") if job in path.as_posix()]
    for driver in world.drivers:
        driver.close()
    return committed_lines(folder / "lines"), left


def test_a_job_that_is_stored_late_comes_out_once(late_seed: int, tmp_path: Path) -> None:
    note = failure_note(late_seed)
    lines, left = play(tmp_path, late_seed)
    assert lines == Counter(str(number) for number in range(COUNT)), note(
        "rows are missing or twice"
    )
    assert left == [], note("not all of the job was forgotten")


@pytest.mark.slow
def test_late_jobs_that_count_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store: Any = JobGraphStore
    monkeypatch.setattr(store, "_newest_list", lambda self: (0, set[str]()))
    expected = Counter(str(number) for number in range(COUNT))

    def is_wrong(seed: int) -> bool:
        folder = tmp_path / str(seed)
        folder.mkdir()
        return play(folder, seed) != (expected, [])

    assert any(map(is_wrong, range(20))), "no seed has found the planted bug"
