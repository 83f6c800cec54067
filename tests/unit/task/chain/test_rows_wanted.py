"""A source emits as many rows at once as leave the wanted number for the consumers behind its chain."""

import itertools
from dataclasses import dataclass

from headrace.network.flow.buffer_debloater import UNLIMITED_ROWS
from headrace.task.chain.outputs import RowsWanted


@dataclass
class Source:
    records_out: int = 0


@dataclass
class Writer:
    rows_wanted: int
    records_out: int = 0


def test_a_source_whose_rows_all_arrive_emits_what_is_wanted() -> None:
    source, writer = Source(), Writer(100)
    wanted = RowsWanted(writer, source)
    for _ in range(20):
        rows = wanted.rows()
        assert rows == 100
        source.records_out += rows
        writer.records_out += rows


def test_a_source_before_a_filter_emits_as_many_times_more_as_the_filter_drops() -> None:
    source, writer = Source(), Writer(100)
    wanted = RowsWanted(writer, source)
    for _ in range(20):
        rows = wanted.rows()
        source.records_out += rows
        writer.records_out += rows // 50
    assert 4_000 < wanted.rows() < 6_000


def test_rows_grow_while_an_aggregation_gives_nothing_away() -> None:
    source, writer = Source(), Writer(100)
    wanted = RowsWanted(writer, source)
    emitted: list[int] = []
    for _ in range(4):
        emitted.append(wanted.rows())
        source.records_out += emitted[-1]
    assert emitted[0] == 100
    assert all(after > 50 * before for before, after in itertools.pairwise(emitted))


def test_a_chain_that_multiplies_rows_gets_what_is_wanted_and_no_less() -> None:
    source, writer = Source(100), Writer(100, records_out=10_000)
    assert RowsWanted(writer, source).rows() == 100


def test_a_filter_that_begins_to_let_rows_through_has_few_at_once_after_a_few_batches() -> None:
    source, writer = Source(), Writer(100)
    wanted = RowsWanted(writer, source)
    for _ in range(5):
        source.records_out += 10_000
        wanted.rows()
    for _ in range(16):
        source.records_out += 10_000
        writer.records_out += 10_000
        wanted.rows()
    assert wanted.rows() <= 200


def test_nothing_is_limited_where_consumers_do_not_mind() -> None:
    assert RowsWanted(Writer(UNLIMITED_ROWS), Source(1_000_000)).rows() == UNLIMITED_ROWS
