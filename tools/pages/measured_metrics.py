"""Metrics that are measured, asked of the runtime itself: of a small job on a MiniCluster, and of its TaskManager."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

import msgspec

from headrace.api.environment import StreamExecutionEnvironment
from headrace.api.transformations import batch_type_of
from headrace.cluster.job_master.connections.options import METRICS_UPDATE_INTERVAL
from headrace.cluster.job_master.coordinators.operator_coordinators import OperatorCoordinators
from headrace.cluster.minicluster import MiniCluster
from headrace.connectors.files.formats.text_lines import StreamFormat
from headrace.connectors.files.source.file_source import FileSource
from headrace.core.barriers import SnapshotKind
from headrace.core.config import Settings
from headrace.core.ids import JobId
from headrace.core.randomness import SeededRandom
from headrace.core.types.type_info import Types
from headrace.functions.specs.operator_specs import CollectSinkSpec
from headrace.functions.watermarks import TimestampAssigner, WatermarkStrategy
from headrace.functions.windowing.assigners import TumblingEventTimeWindows
from headrace.gateways.checkpoint_statistics import CheckpointInfo, CheckpointOverview
from headrace.gateways.dispatcher import DispatcherGateway
from headrace.gateways.job_master import JobDetails
from headrace.gateways.job_metrics import cluster_metrics, job_metrics
from headrace.gateways.resource_manager import ResourceManagerGateway, ResourceOverview
from headrace.graph.job_graph_generator import generate_job_graph
from headrace.graph.stream_graph import NodeRole
from headrace.metrics import names
from headrace.metrics.cluster_names import CONTROL_THREAD_LAG
from headrace.metrics.latency import LATENCY_INTERVAL
from headrace.network.flow.buffer_debloater import DEBLOAT_ENABLED
from headrace.network.flow.latency_governor import LATENCY_TARGET
from headrace.network.metrics import DETAILED_METRICS
from testkit.simulation.simulated_job import PacedSource, RecordingSink, forget_output

_JOB_NAME: Final = "metrics.md"
_RECORD_COUNT: Final = 10**9
"""More than there is time for: rates are told only while a job runs."""
_INTERVAL_MS: Final = 10
_TIMEOUT_S: Final = 60.0
_POLL_S: Final = 0.05
_CHECKPOINTS: Final = CheckpointOverview(
    latest_completed=CheckpointInfo(1, SnapshotKind.CHECKPOINT, 0, 0, 0, 0, "")
)
"""Some metrics are there once a checkpoint is complete."""


@dataclass(frozen=True)
class MeasuredMetrics:
    """Names as in the table: of tasks and operators that a job's details have, and of what else reporters tell."""

    reported: frozenset[str]
    by_reporters: frozenset[str]


class _NumberAsTime(TimestampAssigner):
    def extract_timestamp(self, value: int, record_timestamp: int) -> int:
        return value


def measured_metrics() -> MeasuredMetrics:
    """Run the job and read what is there."""
    details, of_task_manager = _details()
    return MeasuredMetrics(
        _names(name for vertex in details.vertices for name in vertex.metrics),
        _names(of_task_manager)
        | of_task_manager.keys()
        | cluster_metrics(ResourceOverview((), 0), 0).keys()
        | _names(_of_coordinators())
        | job_metrics(msgspec.structs.replace(details, checkpoints=_CHECKPOINTS), 0).keys(),
    )


def _details() -> tuple[JobDetails, dict[str, float]]:
    """Return the details of a windowed job while it runs, and the metrics of a TaskManager; then it is cancelled."""
    random = SeededRandom(_JOB_NAME)
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    watermarks = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(
        _NumberAsTime()
    )
    (
        env.from_source(PacedSource(_RECORD_COUNT, _INTERVAL_MS), watermarks, "Paced", Types.INT())
        .key_by(lambda number: number % 2, key_type=Types.INT())
        .window(TumblingEventTimeWindows.of(timedelta(milliseconds=5)))
        .reduce(lambda one, other: one + other)
        .sink_to(RecordingSink(_JOB_NAME))
    )
    settings = Settings(
        {
            DETAILED_METRICS.key: "true",
            DEBLOAT_ENABLED.key: "true",
            LATENCY_TARGET.key: "50 ms",
            LATENCY_INTERVAL.key: "1 ms",
        }
    )
    graph = generate_job_graph(env.get_stream_graph(_JOB_NAME), JobId.generate(random), settings)
    with MiniCluster(settings={METRICS_UPDATE_INTERVAL.key: "0 ms"}) as cluster:
        handle = cluster.submit(graph)
        details = handle.call(_details_under_way(handle.dispatcher, graph.job_id), _TIMEOUT_S)
        of_task_manager = handle.call(_of_task_manager(handle.resource_manager), _TIMEOUT_S)
        handle.call(handle.dispatcher.cancel_job(graph.job_id))
        cluster.await_result(graph.job_id)
    forget_output(_JOB_NAME)
    return details, of_task_manager


async def _details_under_way(dispatcher: DispatcherGateway, job_id: JobId) -> JobDetails:
    """Ask until the last vertex has received records, so that all operators are open, and every vertex was asked.

    TaskManagers answer at different moments: what one of them says of a watermark may be older than another's records.
    """
    while True:
        details = await dispatcher.request_job_details(job_id)
        assert not details.status.is_terminal_state(), details.failure
        metrics = [vertex.metrics for vertex in details.vertices]
        is_known = names.NUM_RECORDS_OUT.name in metrics[0] and all(
            names.CURRENT_INPUT_WATERMARK.name in found for found in metrics[1:]
        )
        if is_known and metrics[-1].get(names.NUM_RECORDS_IN.name, 0) > 0:
            return details
        await asyncio.sleep(_POLL_S)


def _of_coordinators() -> list[str]:
    """Return the metrics of the coordinators of a program that reads files and collects their lines."""
    env = StreamExecutionEnvironment.get_execution_environment()
    source = FileSource.for_record_stream_format(StreamFormat.text_line_format(), ".").build()
    lines = env.from_source(source, WatermarkStrategy.no_watermarks(), "Lines").transformation
    env.add_operator(CollectSinkSpec(), (lines,), batch_type_of(lines), role=NodeRole.SINK)
    settings, random = Settings(), SeededRandom(_JOB_NAME)
    stream_graph = env.get_stream_graph(_JOB_NAME)
    graph = generate_job_graph(stream_graph, JobId.generate(random), settings)
    coordinators = OperatorCoordinators(
        graph,
        {},
        settings=settings,
        send_event=lambda subtask, operator_id, payload: None,
        run_async=lambda call: call(),
        fail_job=lambda error: None,
    )
    return [name for vertex in graph.vertices for name in coordinators.metrics_of(vertex.vertex_id)]


async def _of_task_manager(resources: ResourceManagerGateway) -> dict[str, float]:
    """Ask one of them until what watches its process has seen something."""
    [one, *_] = (await resources.request_resource_overview()).task_managers
    while True:
        found = await resources.request_task_manager_metrics(one.resource_id)
        if CONTROL_THREAD_LAG.name in found:
            return found
        await asyncio.sleep(_POLL_S)


def _names(snapshot: Iterable[str]) -> frozenset[str]:
    """Names without the operators and groups they stand below; those of histograms without what is told of them."""
    return frozenset(name.rpartition(".")[2].removesuffix("_count") for name in snapshot)
