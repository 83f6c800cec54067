"""RecordBatch: two forms of the same rows, and the way over the wire and back."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.record_batch import BatchType, RecordBatch, concat_batches
from headrace.core.types.rows import Row, RowKind
from headrace.core.types.type_info import Types

PICKLED = BatchType(Types.PICKLED_BYTE_ARRAY())
PAIR = BatchType(Types.TUPLE([Types.STRING(), Types.LONG()]))


def keyed(rows: list[tuple[str, int]]) -> RecordBatch:
    batch = RecordBatch.of_rows(PAIR, rows, np.arange(len(rows), dtype=np.int64))
    hashes = np.array([row[1] for row in rows], dtype=np.int32)
    return batch.with_keys(Types.STRING(), hashes, keys=[row[0] for row in rows])


def same(left: RecordBatch, right: RecordBatch) -> bool:
    assert left.timestamps is not None and right.timestamps is not None
    assert left.key_hashes is not None and right.key_hashes is not None
    return (
        list(left.rows()) == list(right.rows())
        and list(left.keys()) == list(right.keys())
        and left.timestamps.tolist() == right.timestamps.tolist()
        and left.key_hashes.tolist() == right.key_hashes.tolist()
    )


def test_untyped_records_travel_as_one_pickled_column() -> None:
    rows = [("a", 1), {"k": 2}, None]
    arrow = RecordBatch.of_rows(PICKLED, rows).to_arrow()
    assert arrow.schema.names == ["value"]
    assert list(RecordBatch.from_arrow(PICKLED, arrow).rows()) == rows


def test_typed_records_travel_as_columns_with_keys_and_timestamps_behind() -> None:
    arrow = keyed([("a", 1), ("b", 2)]).to_arrow()
    assert arrow.schema.names == ["f0", "f1", "$timestamp", "$key", "$key_hash"]
    assert arrow.column(1).to_pylist() == [1, 2]


@given(st.lists(st.tuples(st.text(max_size=5), st.integers(-1000, 1000)), min_size=1, max_size=20))
def test_the_wire_form_comes_back_whole(rows: list[tuple[str, int]]) -> None:
    batch = keyed(rows)
    again = RecordBatch.from_arrow(BatchType(PAIR.value_type, Types.STRING()), batch.to_arrow())
    assert same(batch, again)


@given(st.integers(0, 6), st.integers(0, 6))
def test_slices_agree_in_both_forms(start: int, length: int) -> None:
    rows = [("a", 1), ("b", 2), ("c", 3), ("a", 4), ("b", 5), ("c", 6)]
    by_rows = keyed(rows).slice(start, length)
    by_columns = RecordBatch.from_arrow(
        BatchType(PAIR.value_type, Types.STRING()), keyed(rows).to_arrow()
    ).slice(start, length)
    assert same(by_rows, by_columns)
    assert list(by_rows.rows()) == rows[start : start + length]


def test_take_and_filter_agree_in_both_forms() -> None:
    rows = [("a", 1), ("b", 2), ("c", 3)]
    columnar = RecordBatch.from_arrow(
        BatchType(PAIR.value_type, Types.STRING()), keyed(rows).to_arrow()
    )
    picked = np.array([2, 0])
    assert same(keyed(rows).take(picked), columnar.take(picked))
    mask = np.array([True, False, True])
    assert list(columnar.filter(mask).rows()) == [("a", 1), ("c", 3)]


def test_concatenation_keeps_order_in_either_form() -> None:
    rows = [("a", 1), ("b", 2), ("c", 3)]
    whole = keyed(rows)
    columnar = RecordBatch.from_arrow(
        BatchType(PAIR.value_type, Types.STRING()), keyed(rows).to_arrow()
    )
    assert same(concat_batches([whole.slice(0, 1), whole.slice(1)]), whole)
    assert same(concat_batches([columnar.slice(0, 2), whole.slice(2)]), whole)


def test_a_row_kind_survives_the_wire() -> None:
    named = BatchType(Types.ROW_NAMED(["a"], [Types.INT()]))
    rows = [Row.of_kind(RowKind.DELETE, a=1), Row(a=2)]
    again = RecordBatch.from_arrow(named, RecordBatch.of_rows(named, rows).to_arrow()).rows()
    assert again[0].get_row_kind() is RowKind.DELETE
    assert again[1].get_row_kind() is RowKind.INSERT


def test_columns_can_be_made_without_rows() -> None:
    data = pa.RecordBatch.from_pydict({"a": [1, 2]}, schema=pa.schema([("a", pa.int64())]))
    batch = RecordBatch.of_columns(BatchType(Types.ROW_NAMED(["a"], [Types.LONG()])), data)
    assert batch.is_columnar and not batch.is_keyed
    assert batch.columns() is data


@pytest.mark.parametrize("has_columns_first", [False, True])
@given(st.lists(st.lists(st.sampled_from(RowKind), min_size=1, max_size=3), min_size=1, max_size=4))
def test_batches_with_row_kinds_and_without_are_put_together(
    has_columns_first: bool, kinds: list[list[RowKind]]
) -> None:
    named = BatchType(Types.ROW_NAMED(["a"], [Types.INT()]))
    batches = [
        RecordBatch.of_rows(named, [Row.of_kind(kind, a=number) for kind in part])
        for number, part in enumerate(kinds)
    ]
    if has_columns_first:
        batches[0].columns()
    rows = RecordBatch.from_arrow(named, concat_batches(batches).to_arrow()).rows()
    assert [(row.get_row_kind(), row["a"]) for row in rows] == [
        (kind, number) for number, part in enumerate(kinds) for kind in part
    ]
