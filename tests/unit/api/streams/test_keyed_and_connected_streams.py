from typing import Any

import pytest

from headrace import OutputTag, StreamExecutionEnvironment, Types
from headrace.api.streams.keyed_stream import KeyedStream
from headrace.core.errors import ProgramError
from headrace.core.record_batch import BatchType
from headrace.datastream.functions import (
    CoMapFunction,
    CoProcessFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    KeySelector,
    ProcessFunction,
)
from headrace.graph.job_graph import JobGraph, PartitionerKind, VertexKind
from tests.unit.api.recording import (
    RecordingExecutor,
    operators,
    plan_nodes,
    recording,
    spec_of,
    types_of,
)

ROW = Types.ROW_NAMED(["name", "age"], [Types.STRING(), Types.INT()])


class ByName(KeySelector):
    def get_key(self, value: Any) -> Any:
        return value[0]


class Count(KeyedProcessFunction):
    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        yield value


class Join(KeyedCoProcessFunction):
    def process_element1(self, value: Any, ctx: KeyedCoProcessFunction.Context) -> Any:
        yield value

    def process_element2(self, value: Any, ctx: KeyedCoProcessFunction.Context) -> Any:
        yield value


class Meet(CoProcessFunction):
    def process_element1(self, value: Any, ctx: CoProcessFunction.Context) -> Any:
        yield value

    def process_element2(self, value: Any, ctx: CoProcessFunction.Context) -> Any:
        yield value


class Split(ProcessFunction):
    def process_element(self, value: Any, ctx: ProcessFunction.Context) -> Any:
        yield value


class Both(CoMapFunction):
    def map1(self, value: Any) -> Any:
        return value

    def map2(self, value: Any) -> Any:
        return value


def people(env: StreamExecutionEnvironment) -> Any:
    return env.from_collection([("Ada", 36)], ROW)


def keyed(env: StreamExecutionEnvironment) -> KeyedStream:
    return people(env).key_by(ByName(), Types.STRING())


def test_key_by_chains_with_its_producer_and_hashes_to_its_consumer(
    env: StreamExecutionEnvironment, executor: RecordingExecutor
) -> None:
    people(env).map(lambda r: r, ROW).set_parallelism(3).key_by(ByName()).process(Count()).print()
    env.execute_async()
    graph = executor.last
    assert [vertex.name for vertex in graph.vertices] == [
        "Source: Collection Source",
        "Map -> _stream_key_by_map_operator",
        "KEYED PROCESS -> Sink: Print to Std. Out",
    ]
    assert [vertex.parallelism for vertex in graph.vertices] == [1, 3, 2]
    assert [edge.partitioner.kind for edge in graph.edges] == [
        PartitionerKind.REBALANCE,
        PartitionerKind.HASH,
    ]


def test_a_partitioning_before_key_by_has_no_effect(
    env: StreamExecutionEnvironment, executor: RecordingExecutor
) -> None:
    people(env).rebalance().key_by(ByName()).process(Count()).print()
    env.execute_async()
    assert [edge.partitioner.kind for edge in executor.last.edges] == [PartitionerKind.HASH]


def test_key_types_are_declared_or_pickled_or_those_of_the_columns(
    env: StreamExecutionEnvironment,
) -> None:
    stream = people(env)
    assert stream.key_by(ByName()).get_key_type() == Types.PICKLED_BYTE_ARRAY()
    assert stream.key_by(ByName(), Types.STRING()).get_key_type() == Types.STRING()
    assert stream.key_by(ByName(), key_type=Types.STRING()).get_key_type() == Types.STRING()
    assert stream.key_by("age").get_key_type() == Types.INT()
    assert stream.key_by("age", "name").get_key_type() == Types.ROW_NAMED(
        ["age", "name"], [Types.INT(), Types.STRING()]
    )


def test_key_by_columns_names_what_is_wrong(env: StreamExecutionEnvironment) -> None:
    with pytest.raises(ProgramError, match="key_by: there is no column 'nam' among name, age"):
        people(env).key_by("nam")
    with pytest.raises(ProgramError, match="type of this one is not declared"):
        env.from_collection([1]).key_by("value")
    with pytest.raises(TypeError, match="key_by has no argument 'typ'"):
        people(env).key_by(ByName(), typ=Types.STRING())


def test_keyed_operators_see_keys_and_give_plain_streams(
    env: StreamExecutionEnvironment, executor: RecordingExecutor
) -> None:
    keyed(env).process(Count(), ROW).print()
    keyed(env).map(lambda r: r).print()
    env.execute_async()
    with_key = BatchType(ROW, Types.STRING())
    assert types_of(executor.last, "_stream_key_by_map_operator").output == with_key
    assert types_of(executor.last, "KEYED PROCESS").inputs == (with_key,)
    assert types_of(executor.last, "KEYED PROCESS").output == BatchType(ROW)
    assert types_of(executor.last, "Map").inputs == (with_key,)


def test_aggregations_keep_the_type_and_check_the_field(
    env: StreamExecutionEnvironment, executor: RecordingExecutor
) -> None:
    for name in ("sum", "min", "max", "min_by", "max_by"):
        assert getattr(keyed(env), name)("age").get_type() == ROW
    keyed(env).sum(1).print()
    env.execute_async()
    assert spec_of(executor.last, "Sum").position == 1
    with pytest.raises(ProgramError, match="sum: there is no field 'height'"):
        keyed(env).sum("height")
    with pytest.raises(
        TypeError, match="The input must be of int or str type to locate the value to sum"
    ):
        keyed(env).sum(1.5)  # type: ignore[arg-type]
    with pytest.raises(
        ProgramError, match="sum: field 'name' is of type String, which is not a number"
    ):
        keyed(env).sum("name")
    keyed(env).max("name")
    with pytest.raises(ProgramError, match="sum: the record is of type String"):
        env.from_collection(["a"], Types.STRING()).key_by(lambda v: v).sum()
    with pytest.raises(ProgramError, match="records of type Integer have no field 1"):
        env.from_collection([1], Types.INT()).key_by(lambda n: n).sum(1)


def test_keyed_values_are_taken_out_for_plain_operations(
    env: StreamExecutionEnvironment, executor: RecordingExecutor
) -> None:
    keyed(env).print()
    keyed(env).union(people(env)).map(lambda r: r).print()
    env.execute_async()
    assert types_of(executor.last, "_keyed_stream_values_operator").output == BatchType(ROW)


def test_key_by_twice_keys_the_values(env: StreamExecutionEnvironment) -> None:
    keyed(env).key_by("age").process(Count()).name("counted").print()
    types = [one["type"] for one in plan_nodes(env.get_execution_plan())]
    assert types[1:3] == ["_stream_key_by_map_operator", "counted"]


@pytest.mark.parametrize("method", ["shuffle", "rescale", "rebalance", "forward", "broadcast"])
def test_a_keyed_stream_cannot_be_repartitioned(
    env: StreamExecutionEnvironment, method: str
) -> None:
    with pytest.raises(ProgramError, match="Cannot override partitioning for KeyedStream"):
        getattr(keyed(env), method)()


@pytest.mark.parametrize(
    "call",
    [
        lambda s: s.name("x"),
        lambda s: s.get_name(),
        lambda s: s.uid("x"),
        lambda s: s.set_uid_hash("0" * 32),
        lambda s: s.set_parallelism(1),
        lambda s: s.set_max_parallelism(1),
        lambda s: s.force_non_parallel(),
        lambda s: s.set_buffer_timeout(1),
        lambda s: s.start_new_chain(),
        lambda s: s.disable_chaining(),
        lambda s: s.slot_sharing_group("x"),
    ],
)
def test_a_keyed_stream_has_no_properties(env: StreamExecutionEnvironment, call: Any) -> None:
    with pytest.raises(ProgramError, match="a KeyedStream has no operator of its own"):
        call(keyed(env))


def test_a_keyed_stream_takes_keyed_functions_only(env: StreamExecutionEnvironment) -> None:
    with pytest.raises(TypeError, match="KeyedProcessFunction is required for KeyedStream"):
        keyed(env).process(Meet())  # type: ignore[arg-type]


def test_connected_streams_are_one_operator_with_two_inputs(
    env: StreamExecutionEnvironment, executor: RecordingExecutor
) -> None:
    people(env).connect(env.from_collection([1], Types.INT())).map(Both(), Types.STRING()).print()
    env.execute_async()
    graph = executor.last
    co_map = next(vertex for vertex in graph.vertices if vertex.name.startswith("Co-Map"))
    assert co_map.kind is VertexKind.TWO_INPUT
    assert [edge.input_number for edge in graph.edges_into(co_map.vertex_id)] == [0, 1]
    assert types_of(graph, "Co-Map").inputs == (BatchType(ROW), BatchType(Types.INT()))


def test_connected_streams_are_keyed_on_both_sides(
    env: StreamExecutionEnvironment, executor: RecordingExecutor
) -> None:
    connected = people(env).connect(people(env)).key_by("name", lambda r: r.name, Types.STRING())
    connected.process(Join(), ROW).print()
    env.execute_async()
    graph = executor.last
    join = next(vertex for vertex in graph.vertices if vertex.name.startswith("Keyed Co-Process"))
    kinds = {edge.partitioner.kind for edge in graph.edges_into(join.vertex_id)}
    assert kinds == {PartitionerKind.HASH}


def test_connected_streams_need_keys_of_one_type(env: StreamExecutionEnvironment) -> None:
    connected = people(env).key_by("name").connect(people(env).key_by("age"))
    with pytest.raises(ProgramError, match="keys of one type, but these are String and Integer"):
        connected.process(Join())


def test_a_keyed_co_function_needs_keyed_streams(env: StreamExecutionEnvironment) -> None:
    with pytest.raises(TypeError, match="needs keyed streams"):
        people(env).connect(people(env)).process(Join())
    with pytest.raises(TypeError, match="The input function must be a CoMapFunction!"):
        people(env).connect(people(env)).map(lambda v: v)  # type: ignore[arg-type]


def test_a_plain_co_function_sees_values_of_a_stream_keyed_on_one_side(
    env: StreamExecutionEnvironment, executor: RecordingExecutor
) -> None:
    keyed(env).connect(people(env)).process(Meet()).print()
    env.execute_async()
    assert "_keyed_stream_values_operator" in operators(executor.last)
    assert types_of(executor.last, "Co-Process").inputs == (BatchType(ROW), BatchType(ROW))


def test_what_keys_a_union_is_chained_to_each_of_its_streams_and_rows_leave_by_key_at_once() -> (
    None
):
    with recording(parallelism=5) as executor:
        env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(2)
        some = people(env).map(lambda r: r, ROW).name("some")
        more = people(env).map(lambda r: r, ROW).name("more").set_parallelism(3)
        some.union(more.rebalance()).key_by(ByName()).process(Count()).name("count")
        env.execute_async()
        by_name = {vertex.name: vertex.parallelism for vertex in executor.last.vertices}
        assert by_name == {
            "Source: Collection Source": 1,
            "some -> _stream_key_by_map_operator": 2,
            "more -> _stream_key_by_map_operator": 3,
            "count": 2,
        }
        assert edges_into(executor.last, "count") == [PartitionerKind.HASH] * 2


def test_what_keys_a_side_output_is_chained_to_the_operator_that_makes_it() -> None:
    with recording(parallelism=5) as executor:
        env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(2)
        tag = OutputTag("side", ROW)
        split = people(env).process(Split(), ROW).name("split").set_parallelism(3)
        split.get_side_output(tag).key_by(ByName()).process(Count()).name("count")
        env.execute_async()
        assert [(vertex.name, vertex.parallelism) for vertex in executor.last.vertices] == [
            ("Source: Collection Source", 1),
            ("split -> _stream_key_by_map_operator", 3),
            ("count", 2),
        ]


def test_values_of_a_keyed_stream_go_by_their_key_to_a_reader_of_any_parallelism(
    env: StreamExecutionEnvironment, executor: RecordingExecutor
) -> None:
    stream = keyed(env)
    stream.print().name("sink").set_parallelism(3)
    stream.union(people(env)).map(lambda r: r, ROW).name("next").set_parallelism(4)
    env.execute_async()
    had = {vertex.name: vertex.parallelism for vertex in executor.last.vertices}
    assert had["_keyed_stream_values_operator -> Sink: sink"] == 3
    assert had["_keyed_stream_values_operator"] == had["next"] == 4
    assert edges_into(executor.last, "_keyed_stream_values_operator") == [PartitionerKind.HASH] * 2


def test_the_last_of_several_keys_and_partitionings_holds_from_where_the_rows_are_made(
    env: StreamExecutionEnvironment, executor: RecordingExecutor
) -> None:
    keyed(env).union(people(env)).key_by(ByName()).process(Count()).name("count")
    keyed(env).partition_custom(lambda key, n: 0, ByName()).map(str).name("custom")
    env.execute_async()
    assert "_keyed_stream_values_operator" not in operators(executor.last)
    assert edges_into(executor.last, "count") == [PartitionerKind.HASH] * 2
    assert edges_into(executor.last, "custom") == [PartitionerKind.CUSTOM]


def edges_into(graph: JobGraph, operator: str) -> list[PartitionerKind]:
    names = {one.operator_id: one.name for v in graph.vertices for one in v.operators}
    return [
        edge.partitioner.kind for edge in graph.edges if names[edge.target_operator_id] == operator
    ]
