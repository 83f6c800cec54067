"""Of any program: `explain()` says what is submitted, and rows of a key keep their order where that is promised."""

import re
from collections import defaultdict
from collections.abc import Iterator
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace import StreamExecutionEnvironment
from headrace.api.client.job_client import JobClient
from headrace.api.executors import set_default_settings
from headrace.graph.job_graph import JobGraph, PartitionerKind
from headrace.testing.minicluster_executor import MiniClusterExecutor
from tests.integration.programs.random_programs import (
    SLOT_COUNT,
    LabelledRow,
    RandomProgram,
    collected,
    random_programs,
)
from tests.unit.api.recording import plan_nodes, recording

Plan = tuple[list[int], list[tuple[int, int, int, str]]]
"""Parallelism of each vertex; producer, consumer, input number and way of each edge."""

_VERTEX: Final = re.compile(r"  vertex (\d+): parallelism (\d+),")
_EDGE: Final = re.compile(r"    reads .* of vertex (\d+) as input (\d+), ([A-Z]+),")


def environment(asked: int | None) -> StreamExecutionEnvironment:
    """Make one as under `headrace run -p`."""
    set_default_settings({} if asked is None else {"parallelism.default": str(asked)})
    try:
        return StreamExecutionEnvironment.get_execution_environment()
    finally:
        set_default_settings({})


def explained(text: str) -> Plan:
    parallelisms: list[int] = []
    edges: list[tuple[int, int, int, str]] = []
    for line in text.splitlines():
        if vertex := _VERTEX.match(line):
            parallelisms.append(int(vertex[2]))
        elif edge := _EDGE.match(line):
            edges.append((int(edge[1]), len(parallelisms), int(edge[2]), edge[3]))
    return parallelisms, sorted(edges)


def submitted(graph: JobGraph) -> Plan:
    number_of = {vertex.vertex_id: number for number, vertex in enumerate(graph.vertices, 1)}
    edges = [
        (
            number_of[edge.source_vertex_id],
            number_of[edge.target_vertex_id],
            edge.input_number,
            edge.partitioner.kind.value,
        )
        for edge in graph.edges
    ]
    return [vertex.parallelism for vertex in graph.vertices], sorted(edges)


def check_plan(program: RandomProgram, explanation: str, plan: str, graph: JobGraph) -> None:
    assert explained(explanation) == submitted(graph)
    assert plan_nodes(plan) == plan_nodes(graph.plan_json)
    had = {one.name: v.parallelism for v in graph.vertices for one in v.operators}
    assert {name: had[name] for name in program.parallelisms if name in had} == {
        name: parallelism for name, parallelism in program.parallelisms.items() if name in had
    }
    assert set(program.promised) <= set(had)
    names = {one.operator_id: one.name for v in graph.vertices for one in v.operators}
    to_keys = [
        edge.partitioner.kind
        for edge in graph.edges
        if names[edge.target_operator_id] == "_stream_key_by_map_operator"
    ]
    assert set(to_keys) <= {PartitionerKind.FORWARD}, "what finds the key never moves a row before"


@given(st.data())
def test_what_explain_says_is_what_is_submitted(data: st.DataObject) -> None:
    with recording(SLOT_COUNT) as executor:
        program = data.draw(random_programs(environment))
        explanation, plan = program.env.explain(), program.env.get_execution_plan()
        program.env.execute_async()
        check_plan(program, explanation, plan, executor.last)


class ObservedExecutor(MiniClusterExecutor):
    """Keeps the last job graph."""

    last: JobGraph

    def submit(self, job_graph: JobGraph) -> JobClient:
        self.last = job_graph
        return super().submit(job_graph)


@pytest.fixture(scope="module")
def executor() -> Iterator[ObservedExecutor]:
    one = ObservedExecutor(slot_count=SLOT_COUNT)
    with one:
        yield one


def check_order(program: RandomProgram) -> None:
    """Rows of a key from one origin come to one subtask of a sink, each once, in the order of their numbers."""
    numbers: dict[Any, list[int]] = defaultdict(list)
    subtasks: dict[Any, set[int]] = defaultdict(set)
    for sink, subtask, row in collected:
        trail, origin, number = row
        for key in program.promised[sink][trail]:
            place = (sink, trail, origin, key.__name__, key(row))
            numbers[place].append(number)
            subtasks[place].add(subtask)
    assert {place: found for place, found in numbers.items() if found != sorted(found)} == {}
    assert {place: found for place, found in subtasks.items() if len(found) > 1} == {}
    rows: list[tuple[str, LabelledRow]] = [(sink, row) for sink, _, row in collected]
    assert len(rows) == len(set(rows))


@given(st.data())
def test_rows_of_a_key_keep_their_order_through_what_promises_it(
    executor: ObservedExecutor, data: st.DataObject
) -> None:
    collected.clear()
    program = data.draw(random_programs(environment))
    explanation, plan = program.env.explain(), program.env.get_execution_plan()
    program.env.execute()
    check_plan(program, explanation, plan, executor.last)
    check_order(program)
