"""Cached streams on TaskManagers that are processes, killed between jobs, and while a job reads what they keep."""

import os
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from headrace import StreamExecutionEnvironment, Types, WatermarkStrategy
from headrace.api.client.job_client import JobClient
from headrace.api.executors import set_active_executor
from headrace.api.streams.cached_streams import CachedDataStream
from headrace.cluster.cluster_handle import ClusterHandle
from headrace.core.ids import ClusterDataSetId
from headrace.datastream.connectors.number_seq import NumberSequenceSource
from headrace.gateways.messages import DataSetInfo
from headrace.graph.job_graph import JobGraph
from testkit.waiting import wait_until
from tests.integration.programs.process_cluster import (
    ProcessDriver,
    TaskManagerProcess,
    process_cluster,
)

COUNT = 2000
PARALLELISM = 2
SETTINGS = {"resourcemanager.taskmanager-timeout": "1 s"}


class HandleExecutor:
    name = "processes"

    def __init__(self, handle: ClusterHandle) -> None:
        self._handle = handle

    def submit(self, job_graph: JobGraph) -> JobClient:
        self._handle.submit(job_graph)
        return JobClient(job_graph.job_id, self._handle.dispatcher, self._handle.loop)

    def default_parallelism(self) -> int:
        return PARALLELISM

    def known_parallelism(self) -> int:
        return self.default_parallelism()

    def list_data_sets(self) -> tuple[DataSetInfo, ...]:
        return self._handle.list_data_sets()

    def release_data_set(self, data_set: ClusterDataSetId) -> None:
        self._handle.release_data_set(data_set)

    def close(self) -> None:
        pass


class World:
    """A program whose first function leaves a byte in a file for each record, whatever process it runs in."""

    def __init__(self, handle: ClusterHandle, driver: ProcessDriver, directory: Path) -> None:
        self.handle, self.driver = handle, driver
        self.calls, self.out = directory / "calls", directory / "out"
        self.gate, self.reached = directory / "gate", directory / "reached"
        self.env = StreamExecutionEnvironment.get_execution_environment()
        numbers = self.env.from_source(
            NumberSequenceSource(1, COUNT), WatermarkStrategy.no_watermarks(), "numbers"
        )
        self.cached: CachedDataStream = numbers.map(
            partial(count_call, str(self.calls)), Types.LONG()
        ).cache()

    def call_count(self) -> int:
        """How many records what makes the stream has seen since this was asked the last time."""
        if not self.calls.exists():
            return 0
        size = self.calls.stat().st_size
        self.calls.unlink()
        return size

    def total(self) -> int:
        """The sum of all records, by a job that is awaited."""
        self.out.unlink(missing_ok=True)
        total = self.cached.key_by(lambda n: 0).reduce(lambda a, b: a + b)
        total.filter(partial(write, str(self.out))).print()
        self.env.execute()
        return max(int(line) for line in self.out.read_text().split())

    def all_tasks_run(self) -> bool:
        """Whether every subtask of the job that has not ended is RUNNING."""
        jobs = self.handle.call(self.handle.dispatcher.list_jobs(), 30.0)
        (tasks,) = (job.tasks for job in jobs if not job.status.is_globally_terminal_state())
        return set(state for state, count in tasks.items() if count) == {"RUNNING"}

    def keepers(self) -> list[TaskManagerProcess]:
        """The processes that keep a part of the stream."""
        (data_set,) = self.env.list_completed_cluster_datasets()
        found = self.handle.call(
            self.handle.resource_manager.request_cluster_partitions(data_set), 30.0
        )
        names = {str(each.stored_by) for each in found}
        return [process for process in self.driver.live if process.name in names]

    def places(self) -> dict[ClusterDataSetId, list[str]]:
        """Return the TaskManagers that keep each data set which the ResourceManager knows, in order."""
        manager = self.handle.resource_manager
        return {
            each: sorted(
                str(part.stored_by)
                for part in self.handle.call(manager.request_cluster_partitions(each), 30.0)
            )
            for each in (info.data_set for info in self.handle.list_data_sets())
        }

    def fail_resource_manager(self) -> None:
        """Let the ResourceManager fail from within, and wait until another one leads."""
        running = self.handle._cluster  # pyright: ignore[reportPrivateUsage]
        failing = running.resource_manager
        failing.run_async(raise_a_bug)
        wait_until(lambda: running.resource_manager is not failing)


TOTAL = COUNT * (COUNT + 1) // 2


def raise_a_bug() -> None:
    raise LookupError("a bug in the ResourceManager")


def count_call(path: str, value: int) -> int:
    # One write of one byte is atomic, also between processes.
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(descriptor, b".")
    os.close(descriptor)
    return value


def write(path: str, value: Any) -> bool:
    """Leave a line, and nothing to print: standard output of these processes is for what they are asked."""
    with open(path, "a") as out:
        out.write(f"{value}\n")
    return False


def double(value: int) -> int:
    return 2 * value


def hold(reached: str, gate: str, value: int) -> int:
    """Let no record through before the gate is there."""
    if not os.path.exists(gate):
        open(reached, "a").close()
        while not os.path.exists(gate):
            threading.Event().wait(0.01)
    return value


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    scratch, files = tmp_path / "scratch", tmp_path / "files"
    scratch.mkdir()
    files.mkdir()
    with process_cluster(scratch, PARALLELISM, SETTINGS) as (handle, driver):
        set_active_executor(HandleExecutor(handle))
        try:
            yield World(handle, driver, files)
        finally:
            set_active_executor(None)


def test_a_stream_is_read_by_later_jobs_until_a_keeper_is_killed_and_then_made_anew_and_dropped(
    world: World,
) -> None:
    assert world.total() == TOTAL and world.call_count() == COUNT
    assert world.total() == TOTAL and world.call_count() == 0
    keepers = world.keepers()
    assert len(keepers) == PARALLELISM
    keepers[0].kill()
    # At once: the cluster may not have noticed it, and then the job does, and runs again.
    assert world.total() == TOTAL and world.call_count() == COUNT
    assert world.total() == TOTAL and world.call_count() == 0
    world.env.close()
    assert world.env.list_completed_cluster_datasets() == set()
    wait_until(lambda: not world.driver.live)


def test_a_job_whose_reader_loses_a_keeper_runs_again_with_what_makes_the_stream(
    world: World,
) -> None:
    assert world.total() == TOTAL and world.call_count() == COUNT
    held = partial(hold, str(world.reached), str(world.gate))
    total = world.cached.map(held, Types.LONG()).key_by(lambda n: 0).reduce(lambda a, b: a + b)
    total.filter(partial(write, str(world.out))).print()
    failures: list[BaseException] = []

    def run() -> None:
        try:
            world.env.execute()
        except BaseException as error:
            failures.append(error)

    job = threading.Thread(target=run)
    world.out.unlink()
    job.start()
    wait_until(world.reached.exists)
    # A task that is not deployed yet would fail of another cause.
    wait_until(world.all_tasks_run)
    world.keepers()[0].kill()
    world.gate.touch()
    job.join(120)
    assert failures == []
    assert max(int(line) for line in world.out.read_text().split()) == TOTAL
    assert world.call_count() == COUNT
    assert world.total() == TOTAL and world.call_count() == 0


def test_resource_managers_that_follow_know_all_that_is_kept_and_nothing_that_was_released(
    world: World,
) -> None:
    assert world.total() == TOTAL and world.call_count() == COUNT
    second = world.cached.map(double, Types.LONG()).cache()
    second.print()
    world.env.execute()
    kept, listed = world.places(), world.handle.list_data_sets()
    assert len(kept) == 2 and all(len(places) == PARALLELISM for places in kept.values())
    workers = {process.pid for process in world.driver.live}

    world.fail_resource_manager()
    # It waits for the reports of TaskManagers, which are not asked to come within a time.
    wait_until(lambda: set(world.handle.list_data_sets()) == set(listed))
    assert world.places() == kept

    first, other = (info.data_set for info in listed)
    world.handle.release_data_set(first)
    world.fail_resource_manager()
    wait_until(lambda: world.places() == {other: kept[other]})
    assert [info for info in listed if info.data_set == other] == list(
        world.handle.list_data_sets()
    )
    assert {process.pid for process in world.driver.live} == workers, "none was started anew"

    world.handle.release_data_set(other)
    world.fail_resource_manager()
    wait_until(lambda: not world.driver.live)
    assert world.handle.list_data_sets() == ()
