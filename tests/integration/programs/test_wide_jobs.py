"""Jobs that are too wide for now, on real processes: they keep no slots from narrower ones, nor from each other."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace import StreamExecutionEnvironment, Types, WatermarkStrategy
from headrace.cluster.cluster_handle import ClusterHandle
from headrace.connectors.datagen.source import DataGeneratorSource
from headrace.core.config import Settings
from headrace.core.ids import JobId
from headrace.core.lifecycle import ExecutionState, JobStatus
from headrace.core.randomness import system_random
from headrace.functions.sink import DiscardingSink
from headrace.graph.job_graph_generator import generate_job_graph
from testkit.waiting import wait_until
from tests.integration.programs.process_cluster import ProcessDriver, process_cluster

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]

SETTINGS = {
    "taskmanager.memory.network.min": "32mb",
    "taskmanager.memory.network.max": "32mb",
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.delay": "100 ms",
    "restart-strategy.fixed-delay.attempts": "100",
}


class Jobs:
    """Jobs of a cluster of processes with one slot each."""

    def __init__(self, handle: ClusterHandle, driver: ProcessDriver) -> None:
        self.handle, self.driver = handle, driver

    def submit(self, parallelism: int) -> JobId:
        env = StreamExecutionEnvironment.get_execution_environment()
        env.set_parallelism(parallelism)
        source = DataGeneratorSource(
            lambda index: index, type_info=Types.LONG(), rows_per_second=100
        )
        numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")
        # All subtasks are one region: they run together or not at all.
        numbers.rebalance().map(abs, Types.LONG()).sink_to(DiscardingSink())
        job_id = JobId.generate(system_random())
        self.handle.submit(generate_job_graph(env.get_stream_graph(), job_id, Settings(SETTINGS)))
        return job_id

    def runs(self, job_id: JobId) -> bool:
        """Whether every task of the job runs."""
        details = self.handle.call(self.handle.dispatcher.request_job_details(job_id))
        states = [subtask.state for vertex in details.vertices for subtask in vertex.subtasks]
        return all(state is ExecutionState.RUNNING for state in states)

    def cancel(self, job_id: JobId) -> None:
        self.handle.call(self.handle.dispatcher.cancel_job(job_id))
        result = self.handle.call(self.handle.dispatcher.request_job_result(job_id), 60)
        assert result.status is JobStatus.CANCELED

    def held_by(self, job_id: JobId) -> set[str]:
        """The TaskManagers of which the job has the slot."""
        overview = self.handle.call(self.handle.resource_manager.request_resource_overview())
        return {
            str(one.resource_id)
            for one in overview.task_managers
            if any(slot.job_id == job_id for slot in one.slots)
        }

    def explanation(self) -> str:
        overview = self.handle.call(self.handle.resource_manager.request_resource_overview())
        return overview.explanation


@pytest.fixture
def jobs(tmp_path: Path) -> Iterator[Jobs]:
    with process_cluster(tmp_path, 4, SETTINGS) as (handle, driver):
        yield Jobs(handle, driver)


def test_a_job_that_is_too_wide_for_now_holds_no_slot_and_runs_once_it_can(jobs: Jobs) -> None:
    first = jobs.submit(2)
    wait_until(lambda: jobs.runs(first), what="the first job runs")
    wide = jobs.submit(3)
    wait_until(lambda: "lacks 3 of 3 slot(s) and takes none" in jobs.explanation(), what="its wait")
    narrow = jobs.submit(2)
    wait_until(lambda: jobs.runs(narrow), what="the narrower job behind it runs")
    assert jobs.held_by(wide) == set()
    jobs.cancel(first)
    assert not jobs.runs(wide)
    jobs.cancel(narrow)
    wait_until(lambda: jobs.runs(wide), what="the wide job runs")


def test_of_two_jobs_that_would_hold_half_each_the_first_runs_and_then_the_other(
    jobs: Jobs,
) -> None:
    first, second = jobs.submit(2), jobs.submit(2)
    wait_until(lambda: jobs.runs(first) and jobs.runs(second), what="both jobs run")
    # Each loses one of its two TaskManagers, and the host has no room for others.
    jobs.driver.count = 2
    lost = {min(jobs.held_by(first)), min(jobs.held_by(second))}
    for process in jobs.driver.live:
        if process.name in lost:
            process.kill()
    wait_until(
        lambda: not jobs.held_by(second) and not lost & jobs.held_by(first),
        what="the second job gives back what it has left",
    )
    wait_until(lambda: jobs.runs(first), what="the first job has the slots of both")
    jobs.cancel(first)
    wait_until(lambda: jobs.runs(second), what="the second job runs")
