"""Sinks that become DataFrames are cut out of a job's graph, and edges that lead out of it take their place."""

from pathlib import Path

import pytest

from headrace import StreamExecutionEnvironment, Types
from headrace.connectors.dataframe.sink import DataFrameSink
from headrace.graph.job_graph import JobGraph, PartitionerKind
from headrace.spark.batch.batch_job import writes_dataframe
from headrace.spark.batch.dataframe_borders import cut_outputs
from tests.unit.api.recording import recording


def program(folder: Path, *, sink_parallelism: int) -> JobGraph:
    with recording() as executor:
        env = StreamExecutionEnvironment.get_execution_environment()
        env.set_parallelism(2)
        doubled = env.from_collection([1, 2, 3], Types.LONG()).map(lambda n: 2 * n, Types.LONG())
        sink = DataFrameSink(str(folder / "out"))
        doubled.sink_to(sink).set_parallelism(sink_parallelism)
        doubled.print()
        env.execute_async("writing")
    return executor.last


@pytest.mark.parametrize("sink_parallelism", [2, 3], ids=["chained", "of its own"])
def test_the_rows_of_a_sink_leave_by_an_edge_of_the_stage_before_it(
    tmp_path: Path, sink_parallelism: int
) -> None:
    graph = program(tmp_path, sink_parallelism=sink_parallelism)
    cut, (output,) = cut_outputs(graph, writes_dataframe)
    assert not any(writes_dataframe(one) for v in cut.vertices for one in v.operators)
    vertex = cut.vertices[-1]
    assert [one.kind for one in vertex.operators][-1] == "print", "print stays where it is"
    assert output.edges == cut.edges_out_of(vertex.vertex_id)
    (edge,) = output.edges
    assert edge.partitioner.kind is PartitionerKind.FORWARD
    assert edge.source_operator_id in [one.operator_id for one in vertex.operators]
    assert edge.target_vertex_id not in [one.vertex_id for one in cut.vertices]


def test_a_graph_without_such_sinks_stays_as_it_is(tmp_path: Path) -> None:
    graph = program(tmp_path, sink_parallelism=2)
    cut, outputs = cut_outputs(graph, lambda _: False)
    assert (cut, outputs) == (graph, ())
