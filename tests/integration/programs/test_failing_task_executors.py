"""A bug in the control plane of a TaskManager ends its process with that cause, and its tasks run elsewhere."""

import gc
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from headrace import StreamExecutionEnvironment, Types, WatermarkStrategy
from headrace.cluster.task_executor.task_executor import TaskExecutor
from headrace.core.config import Settings
from headrace.core.ids import JobId
from headrace.core.lifecycle import JobStatus
from headrace.core.randomness import system_random
from headrace.datastream.connectors.number_seq import NumberSequenceSource
from headrace.functions.sink import DiscardingSink
from headrace.graph.job_graph_generator import generate_job_graph
from tests.integration.programs.process_cluster import process_cluster
from tests.integration.programs.process_jobs import BOUNDED

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]


def breaking(marker: Path) -> Callable[[int], int]:
    """Breaks the TaskExecutor of its process, once, and does not come back from there."""
    path = str(marker)

    def break_once(value: int) -> int:
        if not os.path.exists(path):
            Path(path).touch()

            def bug() -> None:
                raise LookupError("a bug in the TaskExecutor")

            [executor] = [one for one in gc.get_objects() if isinstance(one, TaskExecutor)]
            executor.run_async(bug)
            threading.Event().wait()
        return value

    return break_once


def test_a_task_executor_that_fails_ends_its_process_and_its_tasks_run_elsewhere(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    numbers = env.from_source(
        NumberSequenceSource(0, 9), WatermarkStrategy.no_watermarks(), "numbers"
    )
    numbers.map(breaking(tmp_path / "broken"), Types.LONG()).sink_to(DiscardingSink())
    job_id = JobId.generate(system_random())
    graph = generate_job_graph(env.get_stream_graph(), job_id, Settings(BOUNDED))
    with process_cluster(tmp_path, 2, BOUNDED) as (handle, _):
        handle.submit(graph)
        result = handle.call(handle.dispatcher.request_job_result(job_id), 90)
    assert result.status is JobStatus.FINISHED
    cause = "the TaskManager's process ends at once: fatal error: LookupError: a bug in the TaskExecutor"
    assert capfd.readouterr().err.count(cause) == 1
    assert [one for one in caplog.messages if "was lost: its process ended with" in one]
