"""Rows that need no columns: what is taken for plain is just what columns give back."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.types.arrow_mapping import columns_to_rows, rows_to_columns
from headrace.core.types.arrow_types import data_schema
from headrace.core.types.round_trip_normalizer import plain_rows_of
from headrace.core.types.rows import Row, RowKind
from headrace.core.types.type_info import TypeInformation, Types

PAIR = Types.TUPLE([Types.STRING(), Types.BYTE()])
ROW_AB = Types.ROW_NAMED(["a", "b"], [Types.DOUBLE(), Types.LONG()])
TYPES = [
    Types.BOOLEAN(), Types.BYTE(), Types.SHORT(), Types.INT(), Types.LONG(), Types.BIG_INT(), Types.DOUBLE(),
    Types.STRING(), PAIR, ROW_AB, Types.FLOAT(), Types.CHAR(), Types.SQL_DATE(), Types.PICKLED_BYTE_ARRAY(),
    Types.TUPLE([Types.INT(), PAIR]), Types.TUPLE([Types.LIST(Types.INT())]),
]  # fmt: skip
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-129, 129)
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False)
    | st.text(max_size=3)
    | st.sampled_from(["\ud83d", "é", np.int64(3), np.float64(1.5), np.str_("s")])
)
ROWS = st.lists(
    SCALARS | st.tuples(SCALARS) | st.tuples(SCALARS, SCALARS) | st.tuples(st.text(), st.integers(0, 9)),
    min_size=1,
    max_size=4,
)  # fmt: skip


def through_columns(rows: list[Any], type_info: TypeInformation) -> list[Any]:
    arrays = rows_to_columns(rows, type_info)
    columns = pa.RecordBatch.from_arrays(arrays, schema=data_schema(type_info))
    return columns_to_rows(columns, type_info)


def classes_in(rows: list[Any]) -> list[list[type]]:
    return [[type(row), *map(type, row if isinstance(row, tuple | Row) else ())] for row in rows]


@pytest.mark.parametrize("type_info", TYPES, ids=str)
@given(rows=ROWS)
def test_what_is_plain_is_what_columns_give_back(
    type_info: TypeInformation, rows: list[Any]
) -> None:
    as_plain = plain_rows_of(type_info)
    plain = None if as_plain is None else as_plain(rows)
    if plain is not None:
        kept = through_columns(rows, type_info)
        assert list(plain) == kept
        assert classes_in(list(plain)) == classes_in(kept)


@pytest.mark.parametrize(
    ("rows", "type_info"),
    [
        ([True, False], Types.BOOLEAN()),
        ([-128, 127], Types.BYTE()),
        ([2**63 - 1], Types.LONG()),
        ([float("inf"), -0.0], Types.DOUBLE()),
        (["", "a"], Types.STRING()),
        ([("a", 1), ("b", -1)], PAIR),
    ],
    ids=str,
)
def test_usual_rows_are_plain(rows: list[Any], type_info: TypeInformation) -> None:
    as_plain = plain_rows_of(type_info)
    assert as_plain is not None
    assert as_plain(rows) is rows


def test_values_of_rows_become_rows_as_columns_make_them() -> None:
    as_plain = plain_rows_of(ROW_AB)
    assert as_plain is not None
    assert as_plain([(1.5, 2)]) == [Row(a=1.5, b=2)]
    other = Row(a=1.5, b=2)
    other.set_row_kind(RowKind.DELETE)
    assert as_plain([other]) is None


@pytest.mark.parametrize(
    ("rows", "type_info"),
    [
        ([1, None], Types.LONG()),
        ([2**63], Types.LONG()),
        ([True], Types.INT()),
        (["\ud83d"], Types.STRING()),
        ([("a", 1), ("b",)], PAIR),
        ([["a", 1]], PAIR),
        ([("a", 128)], PAIR),
    ],
    ids=str,
)
def test_of_other_rows_only_columns_can_tell(rows: list[Any], type_info: TypeInformation) -> None:
    as_plain = plain_rows_of(type_info)
    assert as_plain is not None
    assert as_plain(rows) is None


@pytest.mark.parametrize(
    "type_info", [Types.FLOAT(), Types.TUPLE([Types.INT(), PAIR]), Types.PICKLED_BYTE_ARRAY()], ids=str
)  # fmt: skip
def test_of_other_types_only_columns_can_tell(type_info: TypeInformation) -> None:
    assert plain_rows_of(type_info) is None
