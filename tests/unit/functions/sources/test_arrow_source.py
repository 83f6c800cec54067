from datetime import datetime
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas
import polars
import pyarrow as pa
import pytest

from headrace.core.errors import ProgramError
from headrace.core.operator_spec import OperatorTypes
from headrace.core.record_batch import BatchType, RecordBatch
from headrace.core.types.pickles import pickle_code
from headrace.functions.source import InputStatus, SourceReader
from headrace.functions.sources.arrow_source import ArrowSource, read_arrow

COUNT = 10_000
NUMBERS = pa.table({"n": pa.array(range(COUNT), pa.int64())})


class Output:
    def __init__(self, rows_wanted: int = 1_000) -> None:
        self.rows_wanted = rows_wanted
        self.batches: list[RecordBatch] = []

    def emit(self, batch: RecordBatch, split_id: str = "", /) -> None:
        self.batches.append(batch)

    def add_split(self, split_id: str, /) -> None: ...

    def release_split(self, split_id: str, /) -> None: ...

    def rows(self) -> list[Any]:
        return [row for batch in self.batches for row in batch.rows()]


def reader_of(source: ArrowSource, subtask_index: int = 0, parallelism: int = 1) -> SourceReader:
    context: Any = SimpleNamespace(
        subtask_index=subtask_index,
        parallelism=parallelism,
        types=OperatorTypes((), BatchType(source.produced_type)),
        wake=lambda: None,
    )
    return source.create_reader(context)


def read(reader: SourceReader) -> list[Any]:
    output = Output()
    while reader.poll_next(output) is InputStatus.MORE_AVAILABLE:
        pass
    return output.rows()


def numbers(rows: list[Any]) -> list[int]:
    return [row.n for row in rows]


def test_the_subtasks_parts_are_the_rows_in_order() -> None:
    source = read_arrow(NUMBERS)
    parts = [numbers(read(reader_of(source, index, 3))) for index in range(3)]
    assert [*parts[0], *parts[1], *parts[2]] == list(range(COUNT))
    assert min(map(len, parts)) >= COUNT // 3


def test_a_batch_has_no_more_rows_than_are_wanted() -> None:
    output = Output(rows_wanted=7)
    assert reader_of(read_arrow(NUMBERS)).poll_next(output) is InputStatus.MORE_AVAILABLE
    assert numbers(output.rows()) == list(range(7))


def test_restored_readers_go_on_behind_the_rows_that_were_emitted() -> None:
    source = read_arrow(NUMBERS)
    first, second = reader_of(source, 0, 2), reader_of(source, 1, 2)
    before, other = Output(), Output()
    first.poll_next(before)
    second.poll_next(other)
    states = [*first.snapshot_state(1), *second.snapshot_state(1)]
    restored = reader_of(source, 0, 1)
    restored.restore_splits(states)
    again = numbers(before.rows()) + numbers(other.rows()) + numbers(read(restored))
    assert sorted(again) == list(range(COUNT))


def test_a_reader_that_is_restored_without_a_part_ends_at_once() -> None:
    reader = reader_of(read_arrow(NUMBERS), 0, 2)
    reader.restore_splits([])
    assert read(reader) == []


@pytest.mark.parametrize(
    "data",
    [
        pandas.DataFrame({"name": ["a", None], "n": [1, 2]}),
        polars.DataFrame({"name": ["a", None], "n": [1, 2]}),
        pa.table({"name": ["a", None], "n": [1, 2]}),
        pa.record_batch({"name": ["a", None], "n": [1, 2]}),
        pa.table({"name": ["a", None], "n": [1, 2]}).to_reader(max_chunksize=1),
        pa.table({"name": pa.array(["a", None]).dictionary_encode(), "n": [1, 2]}),
    ],
    ids=["pandas", "polars", "table", "batch", "reader", "dictionary"],
)
def test_libraries_with_arrows_stream_interface_give_typed_rows(data: Any) -> None:
    source = read_arrow(data)
    assert str(source.produced_type) == "RowTypeInfo(name: String, n: Long)"
    assert [(row.name, row.n) for row in read(reader_of(source))] == [("a", 1), (None, 2)]


def test_a_column_gives_the_event_time() -> None:
    times = pandas.DataFrame({"at": [datetime(1970, 1, 1, 0, 0, 1), datetime(1970, 1, 1, 0, 0, 2)]})
    output = Output()
    reader_of(read_arrow(times, "at")).poll_next(output)
    stamps = output.batches[0].timestamps
    assert stamps is not None and stamps.tolist() == [1000, 2000]


def test_an_empty_table_is_an_empty_stream() -> None:
    assert read(reader_of(read_arrow(NUMBERS.slice(0, 0)))) == []


def test_the_columns_are_pickled_as_they_lie_in_memory() -> None:
    values = pa.table({"n": np.arange(COUNT)})
    assert len(pickle_code(read_arrow(values))) < 1.1 * values.nbytes


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ([1], r"Arrow's stream interface .*not builtins\.list"),
        (pa.chunked_array([[1]]), "cannot be a stream"),
        (pa.table({"n": pa.array([1], pa.uint64())}), "column 'n': Arrow type uint64"),
        (pandas.DataFrame({"at": [pandas.Timestamp(1)]}), "would lose data"),
        (pa.table({}), "has no columns"),
    ],
)
def test_what_cannot_be_a_stream_is_refused(data: Any, text: str) -> None:
    with pytest.raises(ProgramError, match=text):
        read_arrow(data)


def test_more_rows_than_taskmanagers_can_hold_are_refused_before_all_are_read() -> None:
    taken: list[int] = []

    def endless() -> Any:
        while True:
            taken.append(1)
            yield NUMBERS.to_batches()[0]

    reader = pa.RecordBatchReader.from_batches(NUMBERS.schema, endless())
    with pytest.raises(ProgramError, match=r"more than .*Parquet"):
        read_arrow(reader, size_bytes_max=200_000)
    assert len(taken) == 3
