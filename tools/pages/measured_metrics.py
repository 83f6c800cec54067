"""Which metrics are measured, asked of the runtime itself: of a small job on a MiniCluster and of a TaskManager."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from headrace.api.environment import StreamExecutionEnvironment
from headrace.cluster.minicluster import MiniCluster
from headrace.cluster.task_executor.runner import LocalTaskManager, TaskManagerConfiguration
from headrace.core.config import Settings
from headrace.core.ids import JobId, ResourceId, ResourceManagerId
from headrace.core.lifecycle import JobStatus
from headrace.core.randomness import SeededRandom
from headrace.core.types.type_info import Types
from headrace.functions.time_assigners import TumblingEventTimeWindows
from headrace.functions.watermarks import TimestampAssigner, WatermarkStrategy
from headrace.graph.job_graph_generator import generate_job_graph
from headrace.network.metrics import DETAILED_METRICS
from headrace.testing.simulated_job import PacedSource, RecordingSink, forget_output

_JOB_NAME: Final = "metrics.md"
_RECORD_COUNT: Final = 20


@dataclass(frozen=True)
class MeasuredMetrics:
    """Names as in the table: of tasks and operators that clients can read, and of the process that nobody asks for."""

    reported: frozenset[str]
    in_process: frozenset[str]


class _NumberAsTime(TimestampAssigner):
    def extract_timestamp(self, value: int, record_timestamp: int) -> int:
        return value


def measured_metrics() -> MeasuredMetrics:
    """Run the job and read what is there."""
    return MeasuredMetrics(_reported(), _in_process())


def _reported() -> frozenset[str]:
    """Everything that the tasks of a windowed job report, source to sink."""
    random = SeededRandom(_JOB_NAME)
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    watermarks = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(
        _NumberAsTime()
    )
    (
        env.from_source(PacedSource(_RECORD_COUNT, 1), watermarks, "Paced", Types.INT())
        .key_by(lambda number: number % 2, key_type=Types.INT())
        .window(TumblingEventTimeWindows.of(timedelta(milliseconds=5)))
        .reduce(lambda one, other: one + other)
        .sink_to(RecordingSink(_JOB_NAME))
    )
    settings = Settings({DETAILED_METRICS.key: "true"})
    graph = generate_job_graph(env.get_stream_graph(_JOB_NAME), JobId.generate(random), settings)
    with MiniCluster() as cluster:
        handle = cluster.submit(graph)
        result = cluster.await_result(graph.job_id)
        assert result.status is JobStatus.FINISHED, result.failure
        details = handle.call(handle.dispatcher.request_job_details(graph.job_id))
    forget_output(_JOB_NAME)
    return _names(name for vertex in details.vertices for name in vertex.metrics)


def _in_process() -> frozenset[str]:
    configuration = TaskManagerConfiguration(
        resource_id=ResourceId("metrics"),
        resource_manager_address="",
        resource_manager_id=ResourceManagerId.generate(SeededRandom(_JOB_NAME)),
        secret=bytes(32),
        settings={},
    )
    return _names(LocalTaskManager(configuration).metrics.snapshot())


def _names(snapshot: Iterable[str]) -> frozenset[str]:
    """Names without the operators and groups they stand below."""
    return frozenset(name.rpartition(".")[2] for name in snapshot)
