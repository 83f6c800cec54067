"""Programs drawn at random give equal results in BATCH mode, in STREAMING mode, and by a plain model of them."""

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace import StreamExecutionEnvironment
from headrace.graph.job_graph import JobGraph
from headrace.testing.minicluster_executor import MiniClusterExecutor
from tests.unit.api.recording import recording
from tests.unit.task.batch.local_stages import LocalStages
from tests.unit.task.batch.modelled_functions import Event, keep, results
from tests.unit.task.batch.modelled_programs import CASES, STEPS, Program, multiset

events = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 60)), min_size=1, max_size=40)
steps = st.lists(st.sampled_from(list(STEPS)), max_size=3).map(tuple)
programs = st.builds(
    Program,
    st.sampled_from([name for name, case in CASES.items() if not case.is_for_batch]),
    steps,
    steps,
)


@pytest.fixture(scope="module")
def cluster() -> Iterator[MiniClusterExecutor]:
    executor = MiniClusterExecutor(slot_count=3)
    executor.cluster.start()
    try:
        yield executor
    finally:
        executor.close()


def graph_of(
    program: Program, first: list[Event], second: list[Event], parallelism: int
) -> JobGraph:
    with recording(parallelism) as executor:
        env = StreamExecutionEnvironment.get_execution_environment()
        env.set_parallelism(parallelism)
        program.stream(env, first, second).map(keep).set_parallelism(1).print()
        env.execute_async()
        return executor.last


def in_batch(graph: JobGraph, batch_rows: int) -> list[Any]:
    results.clear()
    LocalStages(graph, batch_rows).run()
    return results.copy()


def in_streaming(cluster: MiniClusterExecutor, graph: JobGraph) -> list[Any]:
    results.clear()
    cluster.submit(graph).get_job_execution_result().result()
    return results.copy()


@settings(max_examples=60)
@given(programs, events, events, st.integers(1, 3), st.integers(1, 50))
def test_both_modes_and_the_model_agree(
    cluster: MiniClusterExecutor,
    program: Program,
    first: list[Event],
    second: list[Event],
    parallelism: int,
    batch_rows: int,
) -> None:
    graph = graph_of(program, first, second, parallelism)
    expected = multiset(program.expected(first, second))
    batch = in_batch(graph, batch_rows)
    assert multiset(batch) == expected
    assert multiset(program.settled(batch)) == expected, "BATCH mode gives final results alone"
    assert multiset(program.settled(in_streaming(cluster, graph))) == expected


@pytest.mark.parametrize(
    "name",
    ["full partitions of keys", "tables of keys", "sorted keys", "full partitions, folded"],
)
def test_full_partitions_end_with_their_input_in_both_modes(
    cluster: MiniClusterExecutor, name: str
) -> None:
    program, first = Program(name), [(n * 7 % 5, n * 11 % 60) for n in range(40)]
    graph = graph_of(program, first, [], 2)
    expected = multiset(program.expected(first, []))
    assert multiset(in_batch(graph, 7)) == expected == multiset(in_streaming(cluster, graph))
