from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.connectors.datagen.source import BATCH_ROWS, DataGeneratorSource, NumberSequenceSource
from headrace.core.types.type_info import Types
from headrace.functions.source import Boundedness, InputStatus
from tests.unit.connectors.connector_contexts import ConnectorContext, Rows, read_all


@given(st.integers(-50, 50), st.integers(0, 300), st.integers(1, 9))
def test_shares_of_a_sequence_tile_it(start: int, size: int, parallelism: int) -> None:
    source = NumberSequenceSource(start, start + size)
    shares = [source.share_of(index, parallelism) for index in range(parallelism)]
    assert [n for share in shares for n in share] == list(range(start, start + size + 1))


def test_a_sequence_is_read_in_batches_and_in_order() -> None:
    source = NumberSequenceSource(1, 10_000)
    assert source.boundedness is Boundedness.BOUNDED
    reader = source.create_reader(ConnectorContext(source.produced_type))
    assert read_all(reader) == list(range(1, 10_001))


def test_an_empty_share_ends_at_once() -> None:
    source = NumberSequenceSource(1, 1)
    context = ConnectorContext(Types.LONG(), subtask_index=0, parallelism=3)
    assert read_all(source.create_reader(context)) == []


def test_a_sequence_must_not_run_backwards() -> None:
    with pytest.raises(ValueError, match="'start' must not be above 'end'"):
        NumberSequenceSource(2, 1)


def generated(parallelism: int, **arguments: Any) -> list[Any]:
    source = DataGeneratorSource(lambda index: index, **arguments)
    return sorted(
        value
        for index in range(parallelism)
        for value in read_all(
            source.create_reader(ConnectorContext(subtask_index=index, parallelism=parallelism))
        )
    )


@given(st.integers(0, 200), st.integers(1, 7))
def test_generated_records_are_each_made_once(count: int, parallelism: int) -> None:
    assert generated(parallelism, count=count) == list(range(count))


def test_a_generator_of_batches_gets_its_own_indexes() -> None:
    def squares(indexes: Any) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays([pa.array(indexes * indexes)], names=["square"])

    row = Types.ROW_NAMED(["square"], [Types.LONG()])
    source = DataGeneratorSource.of_batches(squares, row, count=5)
    reader = source.create_reader(ConnectorContext(row, subtask_index=1, parallelism=2))
    assert [one.square for one in read_all(reader)] == [1, 9]


def test_a_source_without_count_has_no_end() -> None:
    source = DataGeneratorSource(lambda index: index)
    assert source.boundedness is Boundedness.CONTINUOUS_UNBOUNDED
    output = Rows()
    reader = source.create_reader(ConnectorContext())
    assert reader.poll_next(output) is InputStatus.MORE_AVAILABLE
    assert output.values == list(range(BATCH_ROWS))


def test_a_rate_makes_records_when_they_are_due_and_waits_in_between() -> None:
    context = ConnectorContext()
    source = DataGeneratorSource(lambda index: index, count=30, rows_per_second=1000)
    reader, output = source.create_reader(context), Rows()
    assert reader.poll_next(output) is InputStatus.NOTHING_AVAILABLE
    assert output.values == []
    context.clock.advance_ms(10)
    context.timers.fire_due()
    assert context.wake_count == 1
    assert reader.poll_next(output) is InputStatus.NOTHING_AVAILABLE
    assert output.values == list(range(10))
    # Held back for long, it catches up and ends.
    context.clock.advance_ms(1000)
    assert reader.poll_next(output) is InputStatus.END_OF_INPUT
    assert output.values == list(range(30))


def test_between_records_one_timer_waits_however_often_the_source_is_asked() -> None:
    context = ConnectorContext()
    source = DataGeneratorSource(lambda index: index, rows_per_second=0.5)
    reader, output = source.create_reader(context), Rows()
    for _ in range(3):
        assert reader.poll_next(output) is InputStatus.NOTHING_AVAILABLE
    assert len(context.timers.waiting) == 1
    context.clock.advance_ms(1999)
    context.timers.fire_due()
    assert context.wake_count == 0
    context.clock.advance_ms(1)
    context.timers.fire_due()
    assert context.wake_count == 1
    assert reader.poll_next(output) is InputStatus.NOTHING_AVAILABLE
    assert output.values == [0]
    assert len(context.timers.waiting) == 1


def test_a_rate_is_shared_by_the_subtasks() -> None:
    context = ConnectorContext(subtask_index=1, parallelism=4)
    source = DataGeneratorSource(lambda index: index, rows_per_second=1000)
    reader, output = source.create_reader(context), Rows()
    context.clock.advance_ms(100)
    reader.poll_next(output)
    assert output.values == [1 + 4 * index for index in range(25)]


def test_generators_check_their_numbers() -> None:
    with pytest.raises(ValueError, match="'count' cannot be negative"):
        DataGeneratorSource(lambda index: index, count=-1)
    with pytest.raises(ValueError, match="'rows_per_second' must be above 0"):
        DataGeneratorSource(lambda index: index, rows_per_second=0)
    assert np.int64(1) == 1
