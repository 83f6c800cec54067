"""A bug in the control or the data plane of a TaskManager ends it with that cause, and its tasks run elsewhere."""

import gc
import logging
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from headrace import StreamExecutionEnvironment, Types, WatermarkStrategy
from headrace.cluster.minicluster import MiniCluster
from headrace.cluster.task_executor.task_executor import TaskExecutor
from headrace.core.config import Settings
from headrace.core.ids import JobId
from headrace.core.lifecycle import JobStatus
from headrace.core.randomness import system_random
from headrace.datastream.connectors.number_seq import NumberSequenceSource
from headrace.functions.sink import DiscardingSink
from headrace.graph.job_graph import JobGraph
from headrace.graph.job_graph_generator import generate_job_graph
from headrace.network.transport.socket_transport import SocketTransport
from testkit.waiting import wait_until
from tests.integration.programs.process_cluster import process_cluster
from tests.integration.programs.process_jobs import BOUNDED

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]


def bug() -> None:
    raise LookupError("a bug")


def own_executor() -> TaskExecutor:
    """Return the only one of this process that has not ended."""
    gc.collect()
    found = [one for one in gc.get_objects() if isinstance(one, TaskExecutor)]
    [executor] = [one for one in found if one._end_reason is None]
    return executor


def fail_executor() -> None:
    """Break the TaskExecutor of this process."""
    own_executor().run_async(bug)


def fail_network_thread() -> None:
    """Break the data plane of this process, in a callback that belongs to no connection."""
    gc.collect()
    found = [one for one in gc.get_objects() if isinstance(one, SocketTransport)]
    [transport] = [one for one in found if not one._is_closed]
    transport.post(bug)


def breaking(marker: Path, fail: Callable[[], None]) -> Callable[[int], int]:
    """Return a function that breaks its process, once, and does not come back from there."""
    path = str(marker)

    def break_once(value: int) -> int:
        if not os.path.exists(path):
            Path(path).touch()
            fail()
            threading.Event().wait()
        return value

    return break_once


def graph_of(function: Callable[[int], int]) -> JobGraph:
    """Return a job of one task."""
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    numbers = env.from_source(
        NumberSequenceSource(0, 9), WatermarkStrategy.no_watermarks(), "numbers"
    )
    numbers.map(function, Types.LONG()).sink_to(DiscardingSink())
    job_id = JobId.generate(system_random())
    return generate_job_graph(env.get_stream_graph(), job_id, Settings(BOUNDED))


@pytest.mark.parametrize("fail", [fail_executor, fail_network_thread])
def test_a_task_manager_that_fails_ends_its_process_and_its_tasks_run_elsewhere(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
    fail: Callable[[], None],
) -> None:
    graph = graph_of(breaking(tmp_path / "broken", fail))
    with process_cluster(tmp_path, 2, BOUNDED) as (handle, _):
        handle.submit(graph)
        result = handle.call(handle.dispatcher.request_job_result(graph.job_id), 90)
    assert result.status is JobStatus.FINISHED
    cause = "the TaskManager's process ends at once: fatal error: LookupError: a bug"
    assert capfd.readouterr().err.count(cause) == 1
    assert [one for one in caplog.messages if "was lost: its process ended with" in one]


def test_a_task_manager_of_a_minicluster_whose_network_thread_fails_ends_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = str(tmp_path / "broken")

    def break_once(value: int) -> int:
        if not os.path.exists(path):
            Path(path).touch()
            executor = own_executor()
            fail_network_thread()
            wait_until(lambda: executor._end_reason is not None, 20, "the end of the TaskManager")
        return value

    graph = graph_of(break_once)
    with (
        caplog.at_level(logging.INFO),
        MiniCluster(task_manager_count=1, settings=BOUNDED) as cluster,
    ):
        cluster.handle.submit(graph)
        result = cluster.handle.call(cluster.handle.dispatcher.request_job_result(graph.job_id), 90)
    assert result.status is JobStatus.FINISHED
    assert [one for one in caplog.messages if "ends: fatal error: LookupError: a bug" in one]
