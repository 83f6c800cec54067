"""Programs with a cached stream, and what an executor was told of it."""

from headrace import StreamExecutionEnvironment, Types, WatermarkStrategy
from headrace.core.ids import ClusterDataSetId
from headrace.core.shuffle_descriptors import ResultPartitionType
from headrace.datastream.connectors.number_seq import NumberSequenceSource
from headrace.datastream.data_stream import DataStream
from headrace.graph.job_graph import JobGraph

KEPT = ResultPartitionType.BLOCKING_PERSISTENT


def doubled(env: StreamExecutionEnvironment) -> DataStream:
    return numbers(env).map(lambda n: 2 * n, Types.LONG()).name("doubled")


def numbers(env: StreamExecutionEnvironment) -> DataStream:
    source = NumberSequenceSource(1, 9)
    return env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")


def kept_by(graph: JobGraph) -> ClusterDataSetId:
    (edge,) = (edge for edge in graph.edges if edge.result_type is KEPT)
    return ClusterDataSetId(graph.job_id, edge.data_set_id)


class Raising:
    def __init__(self, error: Exception) -> None:
        self._error = error

    def result(self) -> None:
        raise self._error
