"""Checkpoints of a whole cluster on one thread, with lost messages, dead workers and cut connections.

Whatever is lost, the job ends with the output of a run in which nothing was.
"""

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.checkpoint.storage.checkpoint_storage import load_snapshot
from headrace.checkpoint.storage.metadata_format import is_abandonment
from headrace.core.barriers import SavepointFormatType
from headrace.core.config import Settings
from headrace.core.ids import JobId
from headrace.core.lifecycle import JobStatus
from headrace.core.randomness import SeededRandom
from headrace.gateways.errors import CheckpointFailedError
from headrace.graph.job_graph import JobGraph
from testkit.simulation.simulated_cluster import SimulatedCluster, failure_note
from testkit.simulation.simulated_job import counting_job, expected_output, forget_output, output_of
from tests.simulation.scenario import (
    COUNT,
    INTERVAL_MS,
    RESTARTS,
    SETTINGS,
    Plan,
    checkpoint_settings,
    run_scenario,
)
from tests.simulation.seeds import seeds

SEEDS = seeds(40)
LONG_COUNT = 4 * COUNT


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One test per seed, or only the seed that was asked for."""
    if "scenario_seed" in metafunc.fixturenames:
        seed = metafunc.config.getoption("--seed")
        metafunc.parametrize("scenario_seed", list(SEEDS) if seed is None else [seed])


def test_a_job_with_checkpoints_brings_out_every_row_once(scenario_seed: int) -> None:
    note = failure_note(scenario_seed)
    outcome = run_scenario(scenario_seed, takes_checkpoints=True)
    assert outcome.faults == (), note("not as it must be")


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(15))
def test_splits_of_a_file_are_read_once_whatever_is_lost(seed: int, tmp_path: Path) -> None:
    file = tmp_path / "numbers.txt"
    file.write_text("".join(f"{number}\n" for number in range(COUNT)), encoding="utf-8")
    outcome = run_scenario(seed, takes_checkpoints=True, numbers_path=str(file))
    assert outcome.faults == (), failure_note(seed)("not as it must be")


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(15))
def test_slices_that_restart_alone_bring_out_every_row_once(seed: int) -> None:
    outcome = run_scenario(seed, takes_checkpoints=True, is_sliced=True)
    assert outcome.faults == (), failure_note(seed)("not as it must be")


@pytest.mark.slow
def test_some_runs_go_on_from_checkpoints_and_some_checkpoints_come_to_nothing() -> None:
    counts = [
        run_scenario(seed, takes_checkpoints=True).details.checkpoints.counts
        for seed in (11, 15, 21)
    ]
    assert all(each.restored and each.failed and each.completed for each in counts)


def test_a_slice_restarts_alone() -> None:
    outcome = run_scenario(3, takes_checkpoints=True, is_sliced=True)
    attempts = {
        subtask.attempt_number for vertex in outcome.details.vertices for subtask in vertex.subtasks
    }
    assert len(attempts) > 1, "others ran on"


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(10))
def test_a_job_that_stops_with_a_savepoint_goes_on_from_it_as_if_it_had_not(
    seed: int, tmp_path: Path
) -> None:
    sim = SimulatedCluster(seed, settings=SETTINGS, faults=Plan.draw(seed).faults)
    name = f"stopped-{seed}"
    forget_output(name)
    settings = {**RESTARTS, **checkpoint_settings(seed)}

    def submit(changes: dict[str, str]) -> JobId:
        job_id = sim.new_job_id()
        sim.submit(
            counting_job(
                job_id,
                name,
                count=LONG_COUNT,
                interval_ms=INTERVAL_MS,
                parallelism=2,
                settings={**settings, **changes},
            )
        )
        return job_id

    def stop(job_id: JobId) -> str:
        """A user asks again where it came to nothing, for a message was lost."""
        while True:
            try:
                return sim.loop.run_until(
                    sim.dispatcher.stop_with_savepoint(
                        job_id, str(tmp_path), False, SavepointFormatType.CANONICAL
                    )
                )
            except CheckpointFailedError:
                sim.run_for(500)

    first = submit({})
    sim.later(2_500, sim.kill_some_worker)
    sim.run_for(3_000)
    path = stop(first)
    assert sim.await_result(first).status is JobStatus.FINISHED
    assert output_of(name) == Counter(), (
        "the sink brings out at the end of input, which did not come"
    )
    second = submit({"execution.state-recovery.path": path})
    assert sim.await_result(second).status is JobStatus.FINISHED
    assert output_of(name) == expected_output(LONG_COUNT), failure_note(seed)("not exact")
    sim.close()


def two_drivers(
    seed: int, name: str, checkpoints: Path, folder: Path
) -> tuple[SimulatedCluster, SimulatedCluster, Callable[[JobId], JobGraph]]:
    """Two clusters over one folder of checkpoints, and the job that both of them run."""
    forget_output(name)
    settings = {
        **RESTARTS,
        **checkpoint_settings(seed),
        "execution.checkpointing.dir": str(checkpoints),
        "headrace.checkpoint.key-file": str(folder / "key"),
    }

    def graph(job_id: JobId) -> JobGraph:
        return counting_job(
            job_id,
            name,
            count=LONG_COUNT,
            interval_ms=INTERVAL_MS,
            parallelism=2,
            settings=settings,
        )

    old = SimulatedCluster(seed, settings=SETTINGS)
    new = SimulatedCluster(seed + 1, settings=SETTINGS)
    return old, new, graph


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(5))
def test_a_new_driver_goes_on_where_the_old_one_stopped_and_the_old_one_can_do_no_harm(
    seed: int, tmp_path: Path
) -> None:
    name = f"driven-twice-{seed}"
    old, new, graph = two_drivers(seed, name, tmp_path, tmp_path)
    job_id = old.new_job_id()
    old.submit(graph(job_id))
    old.run_for(15_000)
    new.submit(graph(job_id))
    new.run_for(1_000)
    details = new.loop.run_until(new.dispatcher.request_job_details(job_id))
    assert details.checkpoints.counts.restored == 1 and details.checkpoints.restored_id
    # The old one wakes up: it may neither publish nor go on.
    stopped = old.await_result(job_id)
    assert stopped.status is JobStatus.FAILED and stopped.failure is not None
    assert stopped.failure.class_name in ("CheckpointFencedError", "CheckpointExistsError")
    assert output_of(name) == Counter()
    assert new.await_result(job_id).status is JobStatus.FINISHED
    assert output_of(name) == expected_output(LONG_COUNT), failure_note(seed)("not exact")
    old.close()
    new.close()


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(6))
def test_a_driver_that_was_stopping_its_job_and_its_successor_agree_on_the_savepoint(
    seed: int, tmp_path: Path
) -> None:
    name = f"stopped-by-two-{seed}"
    old, new, graph = two_drivers(seed, name, tmp_path / "checkpoints", tmp_path)
    job_id = old.new_job_id()
    old.submit(graph(job_id))
    old.run_for(15_000)
    target = str(tmp_path / "savepoints")
    stopping = old.loop.create_task(
        old.dispatcher.stop_with_savepoint(job_id, target, False, SavepointFormatType.CANONICAL)
    )
    # Away at any moment of it: before its place is known, between two looks, after its publication.
    old.run_for(SeededRandom(seed).uniform(0, 60))
    records = (tmp_path / "checkpoints" / "lineages").glob("*/id-*")
    is_on_record = any(b"savepoint-" in each.read_bytes() for each in records)
    new.submit(graph(job_id))
    new.run_for(1_000)
    ended = old.await_result(job_id)
    published = list(Path(target).glob("*/_metadata")) if Path(target).exists() else []
    complete = [each for each in published if not is_abandonment(each.read_bytes())]
    if ended.status is JobStatus.FINISHED:
        assert len(complete) == 1
        details = new.loop.run_until(new.dispatcher.request_job_details(job_id))
        # A job that had ended in order begins anew where nobody names its savepoint.
        expected = restored_id_of(complete[0], tmp_path) if is_on_record else None
        assert details.checkpoints.restored_id == expected
    else:
        assert ended.failure is not None
        assert ended.failure.class_name in ("CheckpointFencedError", "CheckpointExistsError")
        assert complete == []
    assert output_of(name) == Counter()
    assert new.await_result(job_id).status is JobStatus.FINISHED
    assert output_of(name) == expected_output(LONG_COUNT), failure_note(seed)("not exact")
    old.run_for(1_000)
    assert stopping.done() and (stopping.exception() is None) == bool(complete)
    old.close()
    new.close()


def restored_id_of(metadata: Path, folder: Path) -> int:
    settings = Settings({"headrace.checkpoint.key-file": str(folder / "key")})
    return load_snapshot(str(metadata), settings).checkpoint_id


def test_the_same_seed_gives_the_same_events_with_checkpoints_too() -> None:
    first = run_scenario(5, takes_checkpoints=True)
    assert run_scenario(5, takes_checkpoints=True).trace_digest == first.trace_digest
