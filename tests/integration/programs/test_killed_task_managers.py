"""A TaskManager is killed at a random moment of a job's own work: after the job none of the others holds any of it.

Real processes and sockets. The job has a stored exchange between two that are not, and restarts; then it ends by itself
or is cancelled.
"""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from headrace import StreamExecutionEnvironment, Types, WatermarkStrategy
from headrace.cluster.cluster_handle import ClusterHandle
from headrace.connectors.datagen.source import DataGeneratorSource
from headrace.core.config import Settings
from headrace.core.ids import JobId
from headrace.core.lifecycle import JobStatus
from headrace.core.randomness import SeededRandom, system_random
from headrace.core.shuffle_descriptors import ResultPartitionType
from headrace.datastream.connectors.number_seq import NumberSequenceSource
from headrace.functions.sink import DiscardingSink
from headrace.graph.job_graph import JobGraph
from headrace.graph.job_graph_generator import generate_job_graph
from testkit.waiting import wait_until
from tests.integration.programs.process_cluster import ProcessDriver, process_cluster

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(300)]

TASK_MANAGERS = 3
COUNT, STRIDE = 120_000, 1_000
STAGES = 4
SETTINGS = {
    "taskmanager.memory.network.min": "32mb",
    "taskmanager.memory.network.max": "32mb",
    "resourcemanager.taskmanager-timeout": "1 h",
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": "20",
    "restart-strategy.fixed-delay.delay": "100 ms",
}
WAIT_S = 120


class Hold(NamedTuple):
    """A job does not pass this number at this one of its functions before the file is there."""

    stage: int
    number: int
    until: Path


def counting(file: Path, hold: Hold | None) -> Callable[[int], int]:
    """Makes its file a byte longer now and then."""
    path = str(file)
    held, until = (-1, "") if hold is None else (hold.number, str(hold.until))

    def count(value: int) -> int:
        if value % STRIDE == 0:
            with open(path, "ab") as progress:
                progress.write(b".")
        while value == held and not os.path.exists(until):
            time.sleep(0.01)
        return value

    return count


def endless() -> DataGeneratorSource:
    return DataGeneratorSource(lambda _: -1, None, Types.LONG(), rows_per_second=10.0)


def job(stages: list[Path], hold: Hold, ends: bool) -> JobGraph:
    """Numbers through as many functions, on all TaskManagers; only the second exchange stores what passes.

    One that never ends reads another source for its last function, which nobody counts.
    """
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(TASK_MANAGERS)
    source = NumberSequenceSource(0, COUNT - 1)
    stream: Any = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")
    for number, file in enumerate(stages):
        function = counting(file, hold if number == hold.stage else None)
        if number == STAGES - 1 and not ends:
            stream = stream.union(
                env.from_source(endless(), WatermarkStrategy.no_watermarks(), "ever")
            )
        stream = stream.rebalance().map(function, Types.LONG())
    stream.sink_to(DiscardingSink())
    graph = generate_job_graph(
        env.get_stream_graph(), JobId.generate(system_random()), Settings(SETTINGS)
    )
    assert len(graph.edges) == STAGES + (not ends)
    edges = list(graph.edges)
    edges[1] = msgspec.structs.replace(
        edges[1], result_type=ResultPartitionType.BLOCKING, buffer_timeout_ms=-1
    )
    return msgspec.structs.replace(graph, edges=tuple(edges))


class Run:
    """A submitted job, and how far each of its functions has come, whatever was read again."""

    def __init__(self, handle: ClusterHandle, folder: Path, hold: Hold, ends: bool = True) -> None:
        self.stages = [folder / f"stage-{number}" for number in range(STAGES)]
        for file in self.stages:
            file.touch()
        self._handle = handle
        self._graph = job(self.stages, hold, ends)
        handle.submit(self._graph)

    def progress(self, stage: int) -> int:
        return self.stages[stage].stat().st_size

    def wait_for(self, stage: int, progress: int) -> None:
        wait_until(lambda: self.progress(stage) >= progress, WAIT_S)

    def cancel(self) -> None:
        self._handle.call(self._handle.dispatcher.cancel_job(self._graph.job_id), WAIT_S)

    def status(self) -> JobStatus:
        result = self._handle.dispatcher.request_job_result(self._graph.job_id)
        return self._handle.call(result, WAIT_S).status


def assert_nothing_is_held(driver: ProcessDriver) -> None:
    """By any process that lives; the last words about a job may still be on their way to it."""
    held: list[str] = []

    def holds_nothing() -> bool:
        survivors = driver.live
        assert len(survivors) >= TASK_MANAGERS - 1
        held[:] = [leak for process in survivors for leak in process.leaks()]
        return not held

    try:
        wait_until(holds_nothing, 30)
    except AssertionError:
        pytest.fail("\n".join(held))


@pytest.mark.parametrize("end", ["finish", "cancel at once", "cancel when it goes on"])
@pytest.mark.parametrize("seed", range(2))
def test_what_a_job_leaves_where_a_task_manager_was_killed_is_nothing(
    seed: int, end: str, tmp_path: Path
) -> None:
    random = SeededRandom(f"{seed} {end}")
    stage = random.randrange(STAGES)
    moment = random.randrange(1, COUNT // STRIDE // 2)
    with process_cluster(tmp_path, TASK_MANAGERS, SETTINGS) as (handle, driver):
        # However fast it is, a job has not ended before the process is killed, and one that is cancelled never ends.
        go_on = tmp_path / "go-on"
        run = Run(handle, tmp_path, Hold(STAGES - 1, COUNT - 1, go_on), ends=end == "finish")
        run.wait_for(stage, moment)
        before = driver.live
        assert len(before) == TASK_MANAGERS
        assert any(process.leaks() for process in before), "a job that runs holds something"
        victim = random.choice(before)
        victim.kill()
        go_on.touch()
        if end == "cancel when it goes on":
            run.wait_for(stage, run.progress(stage) + 1)
        if end != "finish":
            run.cancel()
        assert run.status() is (JobStatus.FINISHED if end == "finish" else JobStatus.CANCELED)
        assert_nothing_is_held(driver)
        assert victim not in driver.live
        if end == "finish":
            # It was all done, or more than once, and on another process in place of the one that was killed.
            assert all(run.progress(number) >= COUNT // STRIDE for number in range(STAGES))


def test_a_process_that_lives_says_what_it_holds(tmp_path: Path) -> None:
    """Else the scan of the survivors would prove nothing."""
    go_on = tmp_path / "go-on"
    with process_cluster(tmp_path, TASK_MANAGERS, SETTINGS) as (handle, driver):
        run = Run(handle, tmp_path, Hold(2, 0, go_on))
        run.wait_for(2, 1)
        leaks = [leak for process in driver.live for leak in process.leaks()]
        go_on.touch()
        seen = {leak.rpartition(" holds ")[2].partition(" ")[2] for leak in leaks}
        assert {"partitions", "files of results", "open gates", "reserved pages"} <= seen
        assert {"channels that read", "channels that are read"} <= seen
        assert run.status() is JobStatus.FINISHED
        assert_nothing_is_held(driver)
