"""Readers say where they are and go on from there, at any parallelism: each record once, none twice."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.connectors.datagen import source as datagen
from headrace.connectors.datagen.source import DataGeneratorSource, NumberSequenceSource
from headrace.core.types.type_info import Types
from headrace.functions.source import InputStatus, Source
from headrace.functions.sources import collection_source
from headrace.functions.sources.collection_source import CollectionSource
from testkit.simulation.simulated_job import PacedSource
from tests.unit.connectors.connector_contexts import ConnectorContext, Rows
from tests.unit.connectors.replays import Life, lives, rows_of


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datagen, "BATCH_ROWS", 3)
    monkeypatch.setattr(collection_source, "BATCH_ROWS_MAX", 3)


def source_of(kind: str, count: int) -> Source:
    match kind:
        case "collection":
            return CollectionSource(range(count), Types.LONG())
        case "sequence":
            return NumberSequenceSource(0, count - 1)
        case "generator":
            return DataGeneratorSource(lambda index: index, count, Types.LONG())
        case "paced generator":
            return DataGeneratorSource(lambda index: index, count, Types.LONG(), 1500)
        case _:
            return PacedSource(count, interval_ms=1)


KINDS = ("collection", "sequence", "generator", "paced generator", "paced")


@pytest.mark.parametrize("kind", KINDS)
def test_a_source_that_fails_and_comes_back_brings_each_record_once(kind: str) -> None:
    @given(lives(), st.integers(1, 120))
    def check(attempts: list[Life], count: int) -> None:
        rows = rows_of(source_of(kind, count), attempts, Types.LONG())
        assert sorted(rows) == list(range(count))

    check()


@pytest.mark.parametrize("kind", KINDS)
def test_a_reader_that_was_dealt_nothing_ends_at_once(kind: str) -> None:
    reader = source_of(kind, 20).create_reader(ConnectorContext(Types.LONG()))
    reader.restore_splits([])
    reader.start()
    output = Rows()
    assert reader.poll_next(output) is InputStatus.END_OF_INPUT
    assert output.values == []


def polled(reader: Any, times: int) -> list[Any]:
    output = Rows()
    for _ in range(times):
        reader.poll_next(output)
    return output.values


def test_at_the_same_parallelism_the_order_goes_on_as_it_was() -> None:
    for kind in KINDS[:3]:
        source = source_of(kind, 50)
        before = source.create_reader(ConnectorContext(Types.LONG()))
        rows = polled(before, 2)
        after = source.create_reader(ConnectorContext(Types.LONG()))
        after.restore_splits(before.snapshot_state(1))
        rows += polled(after, 100)
        assert rows == list(range(50)), kind


def test_the_rate_of_a_generator_is_kept_by_whoever_reads_its_splits() -> None:
    source = DataGeneratorSource(lambda index: index, None, Types.LONG(), rows_per_second=1000)
    splits = [
        split
        for index in range(4)
        for split in source.create_reader(ConnectorContext(None, index, 4)).snapshot_state(1)
    ]
    context = ConnectorContext(Types.LONG())
    reader = source.create_reader(context)
    reader.restore_splits(splits[:3])
    context.clock.advance_ms(100)
    assert len(polled(reader, 100)) == 75


def test_a_generator_restored_after_an_hour_does_not_catch_up_with_the_hour() -> None:
    context = ConnectorContext(Types.LONG())
    source = DataGeneratorSource(lambda index: index, None, Types.LONG(), rows_per_second=1000)
    split = source.create_reader(context).snapshot_state(1)
    context.clock.advance_ms(3_600_000)
    reader = source.create_reader(context)
    reader.restore_splits(split)
    context.clock.advance_ms(10)
    assert polled(reader, 100) == list(range(10))
