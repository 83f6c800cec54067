import ast
import linecache
import threading
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NoReturn

import cloudpickle
import pytest
from hypothesis import given

from headrace.core.config import Settings
from headrace.core.errors import ConfigurationError, FunctionNotPicklableError, ProgramError
from headrace.core.key_groups import default_max_parallelism
from headrace.functions.watermarks import WatermarkStrategy
from headrace.graph.chaining import ChainingRules, is_chainable
from headrace.graph.function_location import location_of, user_location_of
from headrace.graph.job_graph import PartitionerKind, VertexKind
from headrace.graph.operator_ids import operator_ids
from headrace.graph.pipeline_options import runs_in_batch
from headrace.graph.stream_graph import NodeRole, Partitioning, StreamEdge, StreamGraph
from tests.unit.graph.graphs import (
    FunctionSpec,
    edge,
    graph,
    job,
    line,
    node,
    source,
    stream_graphs,
)

LOCK = threading.Lock()


def test_a_chain_becomes_one_vertex_named_after_its_operators() -> None:
    made = job(line(3))
    (vertex,) = made.vertices
    assert vertex.name == "Source: n1 -> n2 -> n3"
    assert vertex.kind is VertexKind.SOURCE
    assert [one.name for one in vertex.operators] == ["Source: n1", "n2", "n3"]
    assert made.edges == ()


def test_a_branching_chain_shows_its_branches() -> None:
    branching = graph(
        [source(1), node(2), node(3), node(4, "out", role=NodeRole.SINK)],
        [edge(1, 2), edge(1, 3), edge(3, 4)],
    )
    assert job(branching).vertices[0].name == "Source: n1 -> (n2, n3 -> Sink: out)"


def test_chain_edges_keep_side_output_tags() -> None:
    side = graph([source(1), node(2)], [edge(1, 2, side_output_tag="late")])
    (vertex,) = job(side).vertices
    assert [one.side_output_tag for one in vertex.chain_edges] == ["late"]


def test_an_edge_between_vertices_names_operators_partitioner_and_timeout() -> None:
    two = graph(
        [source(1), node(2), node(3)],
        [edge(1, 2), edge(2, 3, PartitionerKind.HASH, buffer_timeout_ms=7)],
    )
    ids, made = operator_ids(two), job(two)
    (found,) = made.edges
    assert found.source_vertex_id.value == ids[1].value
    assert found.source_operator_id == ids[2]
    assert found.target_operator_id == ids[3]
    assert found.partitioner.kind is PartitionerKind.HASH
    assert found.buffer_timeout_ms == 7


def test_the_number_of_inputs_decides_the_kind_of_task() -> None:
    connected = graph([source(1), source(2), node(3)], [edge(1, 3), edge(2, 3, input_number=1)])
    union = graph([source(1), source(2), node(3)], [edge(1, 3), edge(2, 3)])
    assert job(connected).vertices[2].kind is VertexKind.TWO_INPUT
    assert job(union).vertices[2].kind is VertexKind.ONE_INPUT


def test_a_stream_united_with_itself_has_two_data_sets() -> None:
    doubled = job(graph([source(1), node(2)], [edge(1, 2), edge(1, 2)]))
    assert len({one.data_set_id for one in doubled.edges}) == 2


def test_max_parallelism_is_the_heads_or_the_first_that_is_set_or_derived() -> None:
    head = graph([source(1, max_parallelism=64), node(2, max_parallelism=32)], [edge(1, 2)])
    later = graph([source(1), node(2, max_parallelism=32)], [edge(1, 2)])
    assert job(head).vertices[0].max_parallelism == 64
    assert job(later).vertices[0].max_parallelism == 32
    assert job(line(2)).vertices[0].max_parallelism == default_max_parallelism(2)


def test_functions_and_types_travel_as_bytes_that_give_them_back() -> None:
    made = job(graph([source(1, spec=FunctionSpec(lambda value: value + 1))], []))
    operator = made.vertices[0].operators[0]
    assert cloudpickle.loads(operator.payload).function(1) == 2
    assert operator.kind == "map"


def test_settings_and_plan_travel_along() -> None:
    made = job(line(2), Settings({"a": "b"}))
    assert made.settings == {"a": "b"}
    assert '"nodes"' in made.plan_json


def test_the_same_program_gives_the_same_bytes() -> None:
    assert job(line(4)) == job(line(4))


@given(stream_graphs())
def test_edges_between_vertices_are_exactly_those_that_cannot_be_chained(
    stream_graph: StreamGraph,
) -> None:
    made = job(stream_graph)
    rules = ChainingRules()
    apart = [one for one in stream_graph.edges if not is_chainable(stream_graph, one, rules)]
    assert len(made.edges) == len(apart)
    assert len({one.data_set_id for one in made.edges}) == len(apart)
    position = {vertex.vertex_id: index for index, vertex in enumerate(made.vertices)}
    assert all(
        position[one.source_vertex_id] < position[one.target_vertex_id] for one in made.edges
    )
    assert sum(len(vertex.operators) for vertex in made.vertices) == len(stream_graph.nodes)


# -- mistakes


def test_an_empty_program_is_an_error() -> None:
    with pytest.raises(ProgramError, match="No operators defined in streaming topology"):
        job(graph([], []))


def test_forward_with_different_parallelism_is_an_error_that_names_both() -> None:
    wrong = graph([source(1, parallelism=1), node(2, parallelism=4)], [edge(1, 2)])
    with pytest.raises(
        ProgramError, match=r"'Source: n1' \(parallelism 1\) to 'n2' \(parallelism 4\)"
    ):
        job(wrong)


def test_parallelism_above_max_parallelism_is_an_error() -> None:
    with pytest.raises(ProgramError, match="'n2' has parallelism 8 and max parallelism 4"):
        job(graph([source(1), node(2, parallelism=8, max_parallelism=4)], []))


@pytest.mark.parametrize("mode", ["BATCH", "batch", "AUTOMATIC"])
def test_a_bounded_job_runs_in_batch_mode_where_the_program_says_so(mode: str) -> None:
    made = job(line(2), Settings({"execution.runtime-mode": mode}))
    assert made.settings["execution.runtime-mode"] == "BATCH"
    assert runs_in_batch(Settings(made.settings))


def test_a_bounded_job_streams_where_the_program_says_nothing() -> None:
    assert not runs_in_batch(Settings(job(line(2)).settings))


def test_automatic_mode_streams_where_a_source_has_no_end() -> None:
    endless = graph([source(1, is_bounded=False), node(2)], [edge(1, 2)])
    made = job(endless, Settings({"execution.runtime-mode": "AUTOMATIC"}))
    assert made.settings["execution.runtime-mode"] == "STREAMING"
    with pytest.raises(ProgramError, match="'Source: n1' has no end"):
        job(endless, Settings({"execution.runtime-mode": "BATCH"}))


def test_an_unknown_mode_is_refused() -> None:
    with pytest.raises(
        ConfigurationError, match="'fast': it must be one of STREAMING, BATCH, AUTOMATIC"
    ):
        job(line(2), Settings({"execution.runtime-mode": "fast"}))


def test_uids_are_demanded_where_automatic_ones_are_off() -> None:
    with pytest.raises(ProgramError, match="'Source: n1' has no uid"):
        job(line(2), Settings({"pipeline.auto-generate-uids": "false"}))


class Holder:
    def __init__(self) -> None:
        self.connection = threading.Lock()

    def method(self, value: object) -> object:
        return value

    def __call__(self, value: object) -> object:
        return value


def unpicklable(function: object) -> FunctionNotPicklableError:
    with pytest.raises(FunctionNotPicklableError) as caught:
        job(
            graph(
                [source(1, "numbers"), node(2, "enrich", spec=FunctionSpec(function))], [edge(1, 2)]
            )
        )
    assert caught.value.operator_name == "enrich"
    return caught.value


def line_of(text: str) -> int:
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    return 1 + next(index for index, one in enumerate(lines) if one.strip().startswith(text))


def test_a_lambda_that_captures_a_lock_is_named_with_file_line_and_variable() -> None:
    captured = threading.Lock()
    function = lambda value: (captured, value)  # noqa: E731
    error = unpicklable(function)
    assert error.location == f"{__file__}, line {line_of('function = lambda')}"
    assert "variable 'captured' (lock)" in str(error)


def test_a_function_object_is_named_by_its_class_and_attribute() -> None:
    error = unpicklable(Holder())
    assert error.location == f"{__file__}, line {line_of('class Holder')}"
    assert "attribute 'connection' (lock)" in str(error)


def test_a_bound_method_is_named_by_its_own_line() -> None:
    error = unpicklable(Holder().method)
    assert error.location == f"{__file__}, line {line_of('def method')}"
    assert "attribute 'connection' (lock)" in str(error)


def test_a_partial_is_named_by_its_function_and_argument() -> None:
    error = unpicklable(partial(max, threading.Lock()))
    assert "argument 0 (lock)" in str(error)


def test_a_partitioner_that_cannot_be_pickled_is_named_too() -> None:
    custom = (lambda key, count: 0, Holder())
    way = Partitioning(PartitionerKind.CUSTOM, custom)
    wrong = graph([source(1, "numbers"), node(2)], [StreamEdge(1, 2, 0, way, 100)])
    with pytest.raises(FunctionNotPicklableError, match=r"Source: numbers \(partition_custom\)"):
        job(wrong)


def test_no_file_is_read_to_find_out_that_an_object_is_of_a_library(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def never(_: str) -> list[str]:
        raise AssertionError("the file of a library's class is read for its line")

    monkeypatch.setattr(linecache, "getlines", never)
    assert user_location_of([WatermarkStrategy.no_watermarks(), len], "the call") == "the call"


def test_the_line_of_a_class_is_found_where_python_cannot_parse(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def mismatch(*_: object, **__: object) -> NoReturn:
        raise SystemError("AST constructor recursion depth mismatch (before=180, after=128)")

    monkeypatch.setattr(ast, "parse", mismatch)
    assert location_of(Holder()) == f"{__file__}, line {line_of('class Holder')}"


def test_the_line_of_a_class_is_that_of_its_own_statement_among_several_of_its_name() -> None:
    def first() -> object:
        class Repeated:
            def run(self) -> None: ...

        return Repeated()

    def second() -> object:
        class Repeated:
            def run(self) -> None: ...

        return Repeated()

    lines = [int(location_of(made()).rpartition(" ")[2]) for made in (first, second)]
    assert lines == [made.__code__.co_firstlineno + 1 for made in (first, second)]


def test_the_line_of_a_dataclass_is_that_of_its_statement() -> None:
    @dataclass
    class Recorded:
        value: int

    assert location_of(Recorded(1)) == f"{__file__}, line {line_of('class Recorded')}"
