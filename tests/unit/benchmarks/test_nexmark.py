"""The Nexmark benchmark: its events, its queries, and that each of those has an answer to compare with."""

from pathlib import Path

import pytest

from benchmarks.nexmark.answers import ANSWERS
from benchmarks.nexmark.events import Events
from benchmarks.nexmark.queries import QUERIES
from benchmarks.nexmark.streams import EventStreams
from headrace import StreamExecutionEnvironment


def test_every_query_has_an_answer_to_compare_with() -> None:
    assert QUERIES.keys() == ANSWERS.keys()


def test_a_seed_gives_the_same_events_again_of_fifty_one_person_and_three_auctions() -> None:
    one, other, next_seed = Events(0, 5_000, 1), Events(0, 5_000, 1), Events(0, 5_000, 2)
    tables = [one.persons(), one.auctions(), one.bids()]
    assert [table.num_rows for table in tables] == [100, 300, 4_600]
    assert tables == [other.persons(), other.auctions(), other.bids()]
    assert tables != [next_seed.persons(), next_seed.auctions(), next_seed.bids()]


@pytest.mark.parametrize("name", QUERIES)
def test_each_query_is_a_program_that_reads_what_it_says(name: str, tmp_path: Path) -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    QUERIES[name].build(EventStreams(env, tmp_path)).print()
    names = {node.name for node in env.get_stream_graph(name).nodes}
    assert names & {"person", "auction", "bid"} == {*QUERIES[name].reads}
