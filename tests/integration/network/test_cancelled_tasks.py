"""Tasks that are cancelled at each place where they wait: nothing of them is left.

In virtual time a job on two TaskManagers is cancelled, whole or in part, after each of its steps in turn: between two
of them is every place where a task, a channel, a partition or a connection waits for another. With threads, sockets
and files of the system a task is cancelled at each kind of wait.
"""

import contextlib
import gc
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import pytest

from headrace.api.environment import StreamExecutionEnvironment
from headrace.cluster.task_executor.deployment import StreamTaskFactory
from headrace.core.config import Settings
from headrace.core.ids import JobId, ResultPartitionId
from headrace.core.lifecycle import ExecutionState
from headrace.core.randomness import SeededRandom
from headrace.core.types.type_info import Types
from headrace.graph.execution_graph import ExecutionGraph, expand
from headrace.graph.job_graph_generator import generate_job_graph
from headrace.graph.stream_graph import StreamGraph
from headrace.metrics.groups import MetricGroup
from headrace.network.stored.spill_files import OsFileLayer
from headrace.task.task import Task
from testkit.simulation.cooperative_task_runner import CooperativeTaskRunner
from testkit.waiting import wait_until
from tests.unit.network.exchange import environment
from tests.unit.network.simulated import SimulatedCluster
from tests.unit.task.local_job import LocalJob, RecordingListener

Whom = Literal["all", "producer", "consumer"]
EXCHANGES = ("PIPELINED", "BLOCKING", "HYBRID_FULL", "HYBRID_SELECTIVE")
STEPS_MAX = 400
ROW_BYTES = 20_000
END_STATES = {
    "all": {ExecutionState.CANCELED, ExecutionState.FINISHED},
    # Whoever reads of, or writes to, one that was cancelled may end by itself, or fail for its sake.
    "producer": {ExecutionState.CANCELED, ExecutionState.FINISHED, ExecutionState.FAILED},
    "consumer": {ExecutionState.CANCELED, ExecutionState.FINISHED, ExecutionState.FAILED},
}


def shuffled_texts(count: int) -> StreamGraph:
    """A source of large rows and, on the other side of an exchange, what takes them one by one."""
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    texts = env.from_collection(["x" * ROW_BYTES] * count, type_info=Types.STRING()).rebalance()
    texts.filter(lambda text: not text).print()
    return env.get_stream_graph()


class SimulatedJob(LocalJob):
    """A job whose first vertex runs on one simulated TaskManager and all others on a second one."""

    def __init__(self, stream_graph: StreamGraph, cluster: SimulatedCluster, exchange: str) -> None:
        self.settings = Settings({"execution.batch-shuffle-mode": f"ALL_EXCHANGES_{exchange}"})
        self.random = SeededRandom(7)
        self.listener = RecordingListener()
        self.graph = generate_job_graph(stream_graph, JobId.generate(self.random), self.settings)
        self.execution_graph: ExecutionGraph = expand(self.graph)
        # Sorted by consumer even where there is one, and not more memory than makes a producer wait.
        options = {
            "taskmanager_network_sort__shuffle_min__parallelism": "1",
            "taskmanager_network_sort__shuffle_min__buffers": "16",
            "taskmanager_memory_network_max": "4mb",
            "taskmanager_memory_network_min": "4mb",
        }
        places = [cluster.start(name, **options) for name in "ab"]
        self.location = places[0][1]
        runner = CooperativeTaskRunner(cluster.loop.schedule)
        factories = [
            StreamTaskFactory(
                location.resource_id,
                shuffle,
                runner,
                self.settings,
                cluster.loop.clock,
                self.random,
                MetricGroup(),
                run_blocking=lambda _, body: body(),
            )
            for shuffle, location in places
        ]
        first = self.graph.vertices[0].vertex_id
        self.tasks: list[Task] = [
            factories[descriptor.vertex.vertex_id != first].create(descriptor, self.listener)
            for descriptor in self._descriptors()
        ]

    @property
    def partition_ids(self) -> list[ResultPartitionId]:
        """What its tasks produce."""
        deployed = [each for task in self._descriptors() for each in task.result_partitions]
        return [each.descriptor.partition_id for each in deployed]

    def cancel(self, whom: Whom) -> None:
        """Cancel one of the two tasks, or both."""
        chosen = {"all": self.tasks, "producer": self.tasks[:1], "consumer": self.tasks[1:]}
        for task in chosen[whom]:
            task.cancel()


@pytest.fixture
def frozen() -> Iterator[None]:
    """What is there before the test is nothing that it has to look through each time it collects garbage."""
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.mark.usefixtures("frozen")
@pytest.mark.parametrize("whom", ["all", "producer", "consumer"])
@pytest.mark.parametrize("exchange", EXCHANGES)
def test_a_job_that_is_cancelled_after_each_of_its_steps_in_turn_leaves_nothing(
    exchange: str, whom: Whom
) -> None:
    graph = shuffled_texts(40)
    cancelled = 0
    for moment in range(STEPS_MAX):
        cluster = SimulatedCluster()
        job = SimulatedJob(graph, cluster, exchange)
        job.start()
        is_over = not all(cluster.loop.step() for _ in range(moment))
        job.cancel(whom)
        cluster.loop.run_all()
        if whom != "all":
            # Whoever waits for one that is gone is told by its master.
            job.cancel("all")
            cluster.loop.run_all()
        states = {attempt: states[-1] for attempt, states in job.listener.states.items()}
        assert set(states.values()) <= END_STATES[whom], (moment, job.listener.errors)
        assert len(states) == len(job.tasks)
        cancelled += ExecutionState.CANCELED in states.values()
        if job.tasks[0].state is ExecutionState.FINISHED:
            # What outlives its task is released by the master, a pipelined result that nobody asked for too.
            cluster.environments[0].release_partitions(job.partition_ids)
        # A batch that a task was reading goes with the task; collected is only what came since `gc.freeze`.
        job.tasks.clear()
        gc.collect()
        cluster.assert_nothing_leaks()
        assert [each.buffer_pool.requested_pages for each in cluster.environments] == [0, 0]
        if is_over:
            break
    else:
        raise AssertionError(f"the job takes more than {STEPS_MAX} steps")
    assert cancelled >= 5


class SlowDisk:
    """Calls of one kind wait until they may go on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
        self.is_reached, self.may_go_on = threading.Event(), threading.Event()
        real: Callable[..., int] = getattr(OsFileLayer, call)

        def wait(layer: OsFileLayer, *arguments: Any) -> int:
            self.is_reached.set()
            assert self.may_go_on.wait(30)
            return real(layer, *arguments)

        monkeypatch.setattr(OsFileLayer, call, wait)


@pytest.fixture
def nothing_is_left() -> Iterator[None]:
    """No thread and no descriptor is there after the test that was not there before."""
    # The first event loop of a process opens a pipe that stays.
    warm_up = environment("warm up")
    warm_up.start()
    warm_up.close()
    threads, descriptors = set(threading.enumerate()), open_descriptors()
    yield
    gc.collect()
    wait_until(lambda: set(threading.enumerate()) <= threads)
    assert open_descriptors() <= descriptors


def open_descriptors() -> set[str]:
    """What the descriptors of this process stand for, by number."""
    folder = Path("/proc/self/fd")
    found: set[str] = set()
    for each in folder.iterdir():
        with contextlib.suppress(FileNotFoundError):
            found.add(f"{each.name} {os.readlink(each)}")
    return {each for each in found if "/proc/" not in each}


def ended_without_a_segment(job: LocalJob) -> set[ExecutionState]:
    """Wait for the end of all tasks that were started."""
    job.listener.await_end(len(job.listener.states))
    pool = job.shuffle.buffer_pool
    wait_until(lambda: pool.count_idle_pages() == pool.total_pages)
    return job.final_states()


@pytest.mark.usefixtures("nothing_is_left")
def test_a_task_that_waits_for_rows_is_cancelled_and_nothing_is_left() -> None:
    with LocalJob(shuffled_texts(10)) as job:
        job.tasks[1].start()
        job.listener.await_state(ExecutionState.RUNNING)
        for task in job.tasks:
            task.cancel()
        job.tasks[0].start()
        assert ended_without_a_segment(job) == {ExecutionState.CANCELED}


@pytest.mark.usefixtures("nothing_is_left")
def test_a_task_that_waits_for_memory_is_cancelled_and_nothing_is_left() -> None:
    with LocalJob(shuffled_texts(5_000)) as job:
        job.tasks[0].start()
        partition = job.tasks[0]._environment.outputs[0].partition
        wait_until(lambda: not partition.pool.is_available)
        for task in job.tasks:
            task.cancel()
        job.tasks[1].start()
        assert ended_without_a_segment(job) == {ExecutionState.CANCELED}


@pytest.mark.parametrize("call", ["write", "read"])
@pytest.mark.usefixtures("nothing_is_left")
def test_a_task_that_waits_for_the_disk_is_cancelled_and_nothing_is_left(
    monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    disk = SlowDisk(monkeypatch, call)
    settings = {"execution.batch-shuffle-mode": "ALL_EXCHANGES_BLOCKING"}
    with LocalJob(shuffled_texts(1000), settings) as job:
        job.start()
        assert disk.is_reached.wait(30)
        for task in job.tasks:
            task.cancel()
        disk.may_go_on.set()
        assert ExecutionState.CANCELED in ended_without_a_segment(job)
        assert job.shuffle.storage.read_memory.used_bytes == 0
