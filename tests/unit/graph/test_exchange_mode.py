"""The job's choice of exchange, and what it makes of edges and regions."""

import pytest

from headrace.core.config import Settings
from headrace.core.errors import ConfigurationError, ProgramError
from headrace.core.shuffle_descriptors import ResultPartitionType
from headrace.graph.execution_graph import expand
from headrace.graph.job_graph import PartitionerKind
from headrace.graph.pipeline_options import BATCH_SHUFFLE_MODE, BatchShuffleMode
from tests.unit.graph.graphs import edge, graph, job, node, source

EXCHANGE = graph(
    [source(1), node(2), node(3)],
    [edge(1, 2, PartitionerKind.REBALANCE), edge(2, 3, PartitionerKind.REBALANCE)],
)


def mode(name: str) -> Settings:
    return Settings({BATCH_SHUFFLE_MODE.key: name})


def test_without_a_choice_everything_is_pipelined() -> None:
    made = job(EXCHANGE)
    assert {one.result_type for one in made.edges} == {ResultPartitionType.PIPELINED_BOUNDED}
    assert {one.buffer_timeout_ms for one in made.edges} == {100}
    assert len(expand(made).regions) == 1


@pytest.mark.parametrize("chosen", BatchShuffleMode)
def test_every_edge_between_tasks_becomes_what_the_job_chose(chosen: BatchShuffleMode) -> None:
    made = job(EXCHANGE, mode(chosen.name.lower()))
    assert {one.result_type for one in made.edges} == {chosen.result_type}


def test_a_blocking_edge_has_no_buffer_timeout_and_parts_regions() -> None:
    made = job(EXCHANGE, mode("ALL_EXCHANGES_BLOCKING"))
    assert {one.buffer_timeout_ms for one in made.edges} == {-1}
    # Three vertices of two subtasks each, none of which must run beside another.
    assert [len(region.vertices) for region in expand(made).regions] == [1] * 6


def test_a_job_without_an_end_stores_no_results() -> None:
    endless = graph([source(1, is_bounded=False), node(2)], [edge(1, 2, PartitionerKind.REBALANCE)])
    assert job(endless, mode("ALL_EXCHANGES_PIPELINED")).vertices
    for name in BatchShuffleMode.__members__:
        if name != "ALL_EXCHANGES_PIPELINED":
            with pytest.raises(ProgramError, match="bounded sources, but 'Source: n1' has no end"):
                job(endless, mode(name))


def test_pipelined_edges_let_their_consumers_be_replaced_where_recovery_may_lose_rows() -> None:
    approximate = {"execution.state-recovery.approximate-local-recovery": "true"}
    made = job(EXCHANGE, Settings(approximate))
    assert {one.result_type for one in made.edges} == {ResultPartitionType.PIPELINED_APPROXIMATE}
    assert len(expand(made).regions) == 6
    blocking = job(
        EXCHANGE, Settings(approximate | {BATCH_SHUFFLE_MODE.key: "ALL_EXCHANGES_BLOCKING"})
    )
    assert {one.result_type for one in blocking.edges} == {ResultPartitionType.BLOCKING}


def test_an_unknown_mode_is_refused_by_name() -> None:
    with pytest.raises(
        ConfigurationError, match=r"batch-shuffle-mode' .*'x': it must be one of ALL_EXCH"
    ):
        job(EXCHANGE, mode("x"))


def test_every_kind_has_its_row_in_the_table() -> None:
    for kind in ResultPartitionType:
        traits = kind.traits
        # Who may be read again must be released by somebody who knows that nobody will.
        assert not traits.is_reconsumable or traits.release_by.name == "SCHEDULER"
        assert not traits.is_blocking or traits.is_reconsumable
        assert not (traits.is_blocking and traits.joins_regions)
