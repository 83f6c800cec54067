"""A TaskManager's process gets SIGTERM: its job leaves it with a checkpoint, and restarts elsewhere at once.

Real processes and sockets. No heartbeat times out within the test, and no failure may be followed by a restart.
"""

import os
import signal
from pathlib import Path

import pytest

from headrace import StreamExecutionEnvironment, Types, WatermarkStrategy
from headrace.cluster.cluster_handle import ClusterHandle
from headrace.common import Encoder
from headrace.connectors.datagen.source import DataGeneratorSource
from headrace.core.barriers import SavepointFormatType
from headrace.core.config import Settings
from headrace.core.ids import JobId
from headrace.core.lifecycle import ExecutionState, JobStatus
from headrace.core.randomness import system_random
from headrace.datastream.connectors.file_system import FileSink
from headrace.gateways.job_master import JobDetails
from headrace.graph.job_graph import JobGraph
from headrace.graph.job_graph_generator import generate_job_graph
from testkit.waiting import wait_until
from tests.integration.programs.committed_lines import committed_lines
from tests.integration.programs.process_cluster import process_cluster

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

COUNT = 10_000_000
SETTINGS = {
    "taskmanager.memory.network.min": "32mb",
    "taskmanager.memory.network.max": "32mb",
    "heartbeat.timeout": "10 min",
    # Any other checkpoint than the one before the job leaves would come too late.
    "execution.checkpointing.interval": "10 min",
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": "0",
}
WAIT_S = 120


def job(target: Path) -> JobGraph:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(2)
    source = DataGeneratorSource(lambda index: index, COUNT, Types.LONG(), rows_per_second=400.0)
    numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")
    lines = numbers.key_by(lambda n: n % 7, Types.LONG()).map(str, Types.STRING())
    lines.sink_to(FileSink.for_row_format(target, Encoder.simple_string_encoder()).build())
    return generate_job_graph(
        env.get_stream_graph(), JobId.generate(system_random()), Settings(SETTINGS)
    )


def details_of(handle: ClusterHandle, job_id: JobId) -> JobDetails:
    return handle.call(handle.dispatcher.request_job_details(job_id), WAIT_S)


def await_attempt(handle: ClusterHandle, job_id: JobId, number: int) -> JobDetails:
    """Wait until all subtasks run in their attempt of this number."""

    def is_running() -> bool:
        subtasks = [
            subtask for vertex in details_of(handle, job_id).vertices for subtask in vertex.subtasks
        ]
        attempts = {(one.attempt_number, one.state) for one in subtasks}
        return attempts == {(number, ExecutionState.RUNNING)}

    wait_until(is_running, WAIT_S, f"attempt {number}")
    return details_of(handle, job_id)


def test_the_job_leaves_a_task_manager_that_gets_sigterm_with_a_checkpoint(tmp_path: Path) -> None:
    target, scratch = tmp_path / "lines", tmp_path / "scratch"
    scratch.mkdir()
    with process_cluster(scratch, 3, SETTINGS) as (handle, driver):
        graph = job(target)
        handle.submit(graph)
        await_attempt(handle, graph.job_id, 0)
        told = driver.live[0]
        os.kill(told.pid, signal.SIGTERM)
        details = await_attempt(handle, graph.job_id, 1)
        places = {str(one.resource_id) for each in details.vertices for one in each.subtasks}
        assert told.name not in places
        assert len(places) == 2
        (failure,) = details.exceptions
        cause = "is decommissioned: the process that hosts it was told to stop"
        assert f"TaskManager {told.name} {cause}" in failure.root.error.text
        checkpoint = details.checkpoints
        assert (checkpoint.counts.completed, checkpoint.counts.restored) == (1, 1)
        wait_until(lambda: not told.is_alive, WAIT_S, "the end of the TaskManager that was told")
        stopping = handle.dispatcher.stop_with_savepoint(
            graph.job_id, str(scratch / "savepoints"), False, SavepointFormatType.CANONICAL
        )
        handle.call(stopping, WAIT_S)
        result = handle.call(handle.dispatcher.request_job_result(graph.job_id), WAIT_S)
        assert result.status is JobStatus.FINISHED
    lines = committed_lines(target)
    assert set(lines.values()) == {1}
    for subtask in range(2):
        numbers = sorted(number for number in map(int, lines) if number % 2 == subtask)
        # Each subtask of the source makes every second number, up to where it was stopped.
        assert numbers == list(range(subtask, numbers[-1] + 1, 2))
