"""Rows of every type come out of packed rows as they went in, and become columns of Spark's where it has such."""

import math
import pickle
from collections.abc import Sequence
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from headrace.common import Row, RowKind, Types
from headrace.core.key_hash import hash_array, hash_keys
from headrace.core.record_batch import BatchType, RecordBatch
from headrace.core.types.type_info import TypeInformation
from headrace.task.batch.edge_rows import EdgeRows, packed, packets, unpacked

PICKLED = Types.PICKLED_BYTE_ARRAY()


def carried(batch: RecordBatch) -> RecordBatch:
    column = packets(packed(batch.to_arrow()), 1)
    return RecordBatch.from_arrow(batch.batch_type, unpacked(column, 0))


@pytest.mark.parametrize(
    ("type_info", "values"),
    [
        (Types.LONG(), [1, -5]),
        (Types.STRING(), ["a", "ü"]),
        (PICKLED, [{"a": 1}, None, object]),
        (Types.TUPLE([Types.INT(), Types.FLOAT()]), [(1, 0.5), (2, 1.5)]),
        (Types.SQL_TIMESTAMP(), [datetime(2024, 2, 29, 1, 2, 3, 4)]),
        (Types.SQL_TIME(), [time(1, 2, 3)]),
        (Types.BIG_DEC(), [Decimal("1.50")]),
        (Types.MAP(Types.STRING(), Types.LONG()), [{"a": 1}, {}]),
        (Types.LIST(Types.LONG()), [[1, 2], []]),
        (Types.INSTANT(), []),
        (
            Types.ROW_NAMED(["Day", "day"], [Types.SQL_DATE(), Types.ROW([Types.LONG()])]),
            [Row(Day=date(2024, 1, 1), day=Row(f0=1)), Row(Day=None, day=None)],
        ),
    ],
)
def test_records_are_what_they_were(type_info: TypeInformation, values: Sequence[Any]) -> None:
    batch = RecordBatch.of_rows(BatchType(type_info), values)
    assert list(carried(batch).rows()) == list(values)


def test_kinds_of_rows_come_along() -> None:
    kinds = [RowKind.INSERT, RowKind.DELETE]
    rows = [Row.of_kind(kind, 1) for kind in kinds]
    batch = RecordBatch.of_rows(BatchType(Types.ROW([Types.LONG()])), rows)
    assert [row.get_row_kind() for row in carried(batch).rows()] == kinds


@pytest.mark.parametrize("key_type", [Types.LONG(), PICKLED])
def test_keys_and_times_come_along(key_type: TypeInformation) -> None:
    keys = [3, 4]
    times = np.array([10, 20], dtype=np.int64)
    batch = RecordBatch.of_rows(BatchType(Types.STRING()), ["a", "b"], times)
    found = carried(batch.with_keys(key_type, hash_keys(keys), keys=keys))
    assert list(found.keys()) == keys
    assert found.key_hashes is not None and found.timestamps is not None
    assert found.key_hashes.tolist() == hash_keys(keys).tolist()
    assert found.timestamps.tolist() == times.tolist()


def test_columns_are_spark_s_where_it_has_their_types() -> None:
    row = Types.ROW_NAMED(["Day", "day"], [Types.SQL_DATE(), Types.STRING()])
    rows = [Row(Day=date(2024, 1, 1), day="a"), Row(Day=None, day=None)]
    structs = EdgeRows(BatchType(row)).encode(RecordBatch.of_rows(BatchType(row), rows))
    assert structs.to_pylist() == [
        {"c0": date(2024, 1, 1), "c1": "a", "kind": None},
        {"c0": None, "c1": None, "kind": None},
    ]


@pytest.mark.parametrize("key_type", [Types.LONG(), PICKLED])
def test_other_records_are_pickled_for_spark(key_type: TypeInformation) -> None:
    batch_type = BatchType(Types.SQL_TIME(), key_type)
    batch = RecordBatch.of_rows(BatchType(Types.SQL_TIME()), [time(1, 2, 3)])
    keyed = batch.with_keys(key_type, hash_keys([1]), keys=[1])
    (struct,) = EdgeRows(batch_type).encode(keyed).to_pylist()
    assert pickle.loads(struct["c0"]) == time(1, 2, 3)
    assert struct["key"] == (1 if key_type == Types.LONG() else pickle.dumps(1, -1))


def test_packets_that_begin_at_any_address_are_copied() -> None:
    rows = pa.record_batch({"n": [1, 2, 3]})
    column = pa.array([b"x", packed(rows).to_pybytes()])
    for sliced, index in ((column, 1), (column.slice(1), 0), (column.cast(pa.large_binary()), 1)):
        made = unpacked(sliced, index)
        assert made.equals(rows)
        assert made.column(0).buffers()[1].address % 8 == 0
    twice = packets(packed(rows), 2)
    assert [unpacked(twice, index).equals(rows) for index in range(2)] == [True, True]


@pytest.mark.parametrize("key_index", [0, 1])
def test_a_key_that_is_a_column_is_not_written_twice_and_comes_back(key_index: int) -> None:
    type_info = Types.TUPLE([Types.LONG(), Types.LONG()])
    columns = [pa.array(range(1000)), pa.array([number % 7 for number in range(1000)])]
    batch = RecordBatch.of_columns(
        BatchType(type_info), pa.RecordBatch.from_arrays(columns, ["f0", "f1"])
    )
    keys, others = columns[key_index], pa.array(range(1, 1001))
    keyed = batch.with_keys(Types.LONG(), hash_array(keys, "test"), keys_array=keys)
    other = batch.with_keys(Types.LONG(), hash_array(keys, "test"), keys_array=others)
    content, whole = packed(keyed.to_arrow()), packed(other.to_arrow())
    assert content.size < whole.size - 7_000
    arrow = unpacked(packets(content, 1), 0)
    assert arrow.equals(keyed.to_arrow())
    # In one input there may be both.
    assert arrow.schema.equals(unpacked(packets(whole, 1), 0).schema, check_metadata=True)


def test_a_key_that_is_another_zero_is_written() -> None:
    type_info = Types.TUPLE([Types.DOUBLE()])
    batch = RecordBatch.of_columns(
        BatchType(type_info), pa.RecordBatch.from_arrays([pa.array([-0.0])], ["f0"])
    )
    keys = pa.array([0.0])
    keyed = batch.with_keys(Types.DOUBLE(), hash_array(keys, "test"), keys_array=keys)
    (found,) = carried(keyed).keys()
    assert math.copysign(1, found) == 1
