from typing import Any

import pyarrow as pa
import pytest

from headrace import OutputTag, StreamExecutionEnvironment, Types
from headrace.api.streams.data_stream import DataStream
from headrace.common import Encoder, WatermarkStrategy
from headrace.core.errors import ProgramError
from headrace.core.record_batch import BatchType
from headrace.datastream.connectors.file_system import FileSink
from headrace.datastream.connectors.number_seq import NumberSequenceSource
from headrace.datastream.functions import MapFunction, ProcessFunction
from headrace.graph.job_graph import PartitionerKind
from tests.unit.api.recording import RecordingExecutor, operators, plan_nodes, spec_of, types_of

PAIR = Types.TUPLE([Types.STRING(), Types.INT()])
ROW = Types.ROW_NAMED(["name", "age"], [Types.STRING(), Types.INT()])


class Plus(MapFunction):
    def map(self, value: Any) -> Any:
        return value + 1


class Split(ProcessFunction):
    def process_element(self, value: Any, ctx: ProcessFunction.Context) -> Any:
        yield value


def numbers(env: StreamExecutionEnvironment) -> DataStream:
    return env.from_collection([1, 2, 3], Types.INT())


def submitted(env: StreamExecutionEnvironment, executor: RecordingExecutor) -> Any:
    env.execute_async("job")
    return executor.last


def test_types_are_declared_kept_or_pickled(env: StreamExecutionEnvironment) -> None:
    ints = numbers(env)
    assert str(ints.get_type()) == "Integer"
    assert str(ints.map(str).get_type()) == "PickledByteArrayTypeInfo"
    assert str(ints.map(str, Types.STRING()).get_type()) == "String"
    assert (
        str(ints.map(lambda n: (n, n), [Types.INT(), Types.LONG()]).get_type())
        == "RowTypeInfo(Integer, Long)"
    )
    assert ints.filter(lambda n: n > 1).get_type() == ints.get_type()
    assert ints.union(ints).get_type() == ints.get_type()
    assert ints.rebalance().get_type() == ints.get_type()
    assert (
        ints.assign_timestamps_and_watermarks(WatermarkStrategy.no_watermarks()).get_type()
        == ints.get_type()
    )


def test_operators_have_flinks_default_names(env: StreamExecutionEnvironment) -> None:
    ints = numbers(env)
    pairs = env.from_collection([("a", 1)], PAIR)
    strategy = WatermarkStrategy.for_monotonous_timestamps()
    assert ints.get_name() == "Collection Source"
    assert ints.map(Plus()).get_name() == "Map"
    assert ints.flat_map(lambda n: [n]).get_name() == "FlatMap"
    assert ints.filter(bool).get_name() == "Filter"
    assert ints.process(Split()).get_name() == "PROCESS"
    assert pairs.project(1).get_name() == "Projection"
    assert ints.assign_timestamps_and_watermarks(strategy).get_name() == "Timestamps/Watermarks"


def test_sources_and_sinks_say_what_they_are_in_vertices(
    env: StreamExecutionEnvironment, executor: RecordingExecutor
) -> None:
    numbers(env).print("id")
    sink = FileSink.for_row_format("out", Encoder.simple_string_encoder()).build()
    env.from_source(NumberSequenceSource(1, 9), WatermarkStrategy.no_watermarks(), "seq").sink_to(
        sink
    )
    names = list(operators(submitted(env, executor)))
    assert names == [
        "Source: Collection Source",
        "Sink: Print to Std. Out",
        "Source: seq",
        "Sink: FileSink",
    ]


def test_properties_change_the_operator_and_return_the_stream(
    env: StreamExecutionEnvironment, executor: RecordingExecutor
) -> None:
    mapped = numbers(env).map(Plus(), Types.INT())
    changed = (
        mapped.name("plus")
        .uid("plus-uid")
        .set_parallelism(3)
        .set_max_parallelism(64)
        .set_description("adds one")
        .set_buffer_timeout(5)
        .slot_sharing_group("heavy")
    )
    assert changed is mapped
    mapped.print().name("out").uid("out-uid").set_parallelism(1)
    graph = submitted(env, executor)
    plus = operators(graph)["plus"]
    vertex = next(one for one in graph.vertices if plus in one.operators)
    assert (plus.uid, plus.description) == ("plus-uid", "adds one")
    assert (vertex.parallelism, vertex.max_parallelism, vertex.slot_sharing_group) == (
        3,
        64,
        "heavy",
    )
    (edge,) = graph.edges_out_of(vertex.vertex_id)
    assert edge.buffer_timeout_ms == 5
    # The sink inherited the group of its input.
    assert graph.vertex(edge.target_vertex_id).slot_sharing_group == "heavy"


def test_a_collection_source_is_never_parallel(env: StreamExecutionEnvironment) -> None:
    ints = numbers(env)
    ints.print()
    assert plan_nodes(env.get_execution_plan())[0]["parallelism"] == 1
    with pytest.raises(ProgramError, match="non-parallel operator 'Collection Source' must be 1"):
        ints.set_parallelism(2)


def test_parallelism_shows_in_the_plan(env: StreamExecutionEnvironment) -> None:
    ints = numbers(env)
    ints.map(Plus()).set_parallelism(3).print()
    ints.map(Plus()).force_non_parallel().print()
    assert [one["parallelism"] for one in plan_nodes(env.get_execution_plan())] == [1, 3, 1, 2, 2]


@pytest.mark.parametrize(
    ("method", "kind"),
    [
        ("broadcast", "BROADCAST"),
        ("rebalance", "REBALANCE"),
        ("rescale", "RESCALE"),
        ("shuffle", "SHUFFLE"),
    ],
)
def test_partitioning_methods_show_as_ship_strategies(
    env: StreamExecutionEnvironment, method: str, kind: str
) -> None:
    getattr(numbers(env).map(Plus()), method)().map(Plus()).name("next").print()
    node = next(one for one in plan_nodes(env.get_execution_plan()) if one["type"] == "next")
    assert node["predecessors"][0]["ship_strategy"] == kind


def test_forward_needs_equal_parallelism(env: StreamExecutionEnvironment) -> None:
    numbers(env).forward().map(Plus()).print()
    with pytest.raises(ProgramError, match=r"forward\(\) from 'Source: Collection Source'"):
        env.execute_async()


def test_a_custom_partitioner_travels_with_its_key_selector(
    env: StreamExecutionEnvironment, executor: RecordingExecutor
) -> None:
    import cloudpickle

    numbers(env).partition_custom(lambda key, count: key % count, lambda n: n).print()
    (edge,) = submitted(env, executor).edges
    partitioner, selector = cloudpickle.loads(edge.partitioner.payload)
    assert edge.partitioner.kind is PartitionerKind.CUSTOM
    assert (partitioner(5, 3), selector(7)) == (2, 7)


def test_of_two_partitionings_the_last_one_holds(
    env: StreamExecutionEnvironment, executor: RecordingExecutor
) -> None:
    numbers(env).rebalance().broadcast().print()
    (edge,) = submitted(env, executor).edges
    assert edge.partitioner.kind is PartitionerKind.BROADCAST


def test_a_union_feeds_one_input_from_all_its_streams(
    env: StreamExecutionEnvironment, executor: RecordingExecutor
) -> None:
    ints = numbers(env)
    ints.union(numbers(env), ints).map(Plus()).name("next").print()
    graph = submitted(env, executor)
    target = next(vertex for vertex in graph.vertices if vertex.name.startswith("next"))
    assert [edge.input_number for edge in graph.edges_into(target.vertex_id)] == [0, 0, 0]


def test_a_union_of_different_types_is_refused(env: StreamExecutionEnvironment) -> None:
    with pytest.raises(ProgramError, match="streams of one type"):
        numbers(env).union(env.from_collection(["a"], Types.STRING()))


def test_side_outputs_are_read_by_tag_with_their_own_type(
    env: StreamExecutionEnvironment, executor: RecordingExecutor
) -> None:
    main = numbers(env).process(Split(), Types.INT())
    tag = OutputTag("odd", Types.STRING())
    side = main.get_side_output(tag)
    main.print()
    side.print().name("odd numbers")
    assert str(side.get_type()) == "String"
    graph = submitted(env, executor)
    assert types_of(graph, "PROCESS").side_outputs == {"odd": BatchType(Types.STRING())}
    chain_edges = [edge for vertex in graph.vertices for edge in vertex.chain_edges]
    assert [edge.side_output_tag for edge in chain_edges] == [None, "odd"]


def test_one_tag_of_two_types_at_one_operator_is_refused(env: StreamExecutionEnvironment) -> None:
    main = numbers(env).process(Split())
    main.get_side_output(OutputTag("odd", Types.STRING()))
    with pytest.raises(ProgramError, match="side output 'odd' of operator 'PROCESS'"):
        main.get_side_output(OutputTag("odd", Types.INT()))


def test_streams_without_an_operator_of_their_own_have_no_properties(
    env: StreamExecutionEnvironment,
) -> None:
    for stream in (numbers(env).rebalance(), numbers(env).union(numbers(env))):
        with pytest.raises(ProgramError, match="no operator of its own"):
            stream.name("x")


def test_project_keeps_fields_of_tuples_only(env: StreamExecutionEnvironment) -> None:
    pairs = env.from_collection([("a", 1)], PAIR)
    assert str(pairs.project(1, 0).get_type()) == "TupleTypeInfo(Integer, String)"
    with pytest.raises(TypeError, match=r"Only Tuple DataStreams can be projected\."):
        numbers(env).project(0)
    with pytest.raises(ValueError, match=r"within 0\.\.1"):
        pairs.project(2)


def test_map_batches_takes_a_schema_or_keeps_the_type(env: StreamExecutionEnvironment) -> None:
    rows = env.from_collection([("a", 1)], ROW)
    assert rows.map_batches(lambda batch: batch).get_type() == ROW
    schema = pa.schema([("total", pa.int64())])
    assert (
        str(rows.map_batches(lambda batch: batch, schema).get_type()) == "RowTypeInfo(total: Long)"
    )


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda s: s.map(3), "The input must be a MapFunction or a callable function"),
        (lambda s: s.map(Plus), "the class Plus itself; pass an instance of it"),
        (lambda s: s.flat_map("x"), "The input must be a FlatMapFunction or a callable function"),
        (
            lambda s: s.map_batches(3),
            "The input must be a MapBatchesFunction or a callable function",
        ),
        (lambda s: s.filter(None), "The input must be a FilterFunction or a callable function"),
        (lambda s: s.process(lambda v: v), "The input must be a ProcessFunction"),
        (
            lambda s: s.key_by(3),
            "key_selector should be type of KeySelector or a callable function",
        ),
        (lambda s: s.partition_custom(3, hash), "partitioner should be type of Partitioner"),
        (lambda s: s.partition_custom(max, 3), "key_selector should be type of KeySelector"),
        (lambda s: s.sink_to("out"), "sink_to needs a Sink"),
        (lambda s: s.map(str, "STRING"), "a type must be a TypeInformation"),
        (lambda s: s.window_all(5), "a WindowAssigner is needed"),
        (lambda s: s.assign_timestamps_and_watermarks(5), "a WatermarkStrategy is needed"),
        (lambda s: s.connect(5), "connect needs a DataStream"),
        (lambda s: s.name(5), "a name must be a str"),
    ],
)
def test_wrong_arguments_are_type_errors_at_once(
    env: StreamExecutionEnvironment, call: Any, text: str
) -> None:
    with pytest.raises(TypeError, match=text.replace("(", r"\(")):
        call(numbers(env))


def test_an_operator_knows_the_users_file_and_line(
    env: StreamExecutionEnvironment, executor: RecordingExecutor
) -> None:
    numbers(env).map(lambda n: n).map(str).print()
    made = operators(submitted(env, executor))
    assert all(one.location.startswith(f"{__file__}, line ") for one in made.values())


def test_print_keeps_its_identifier(
    env: StreamExecutionEnvironment, executor: RecordingExecutor
) -> None:
    numbers(env).print("id")
    assert spec_of(submitted(env, executor), "Sink: Print to Std. Out").identifier == "id"
