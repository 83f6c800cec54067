"""Rows to columns and back: what round-trips, what is refused."""

import datetime
import threading
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.errors import RecordTypeError
from headrace.core.types.arrow_mapping import ROW_KIND_COLUMN, columns_to_rows, rows_to_columns
from headrace.core.types.arrow_types import data_schema, type_info_from_schema
from headrace.core.types.rows import Row, RowKind
from headrace.core.types.time_values import Instant
from headrace.core.types.type_info import TypeInformation, Types

ROW_AB = Types.ROW_NAMED(["a", "b"], [Types.STRING(), Types.INT()])
PAIR = Types.TUPLE([Types.STRING(), Types.INT()])


def batch_of(rows: list[Any], type_info: TypeInformation) -> pa.RecordBatch:
    arrays = rows_to_columns(rows, type_info)
    schema = data_schema(type_info)
    assert [array.type for array in arrays[: len(schema)]] == schema.types
    assert {len(array) for array in arrays} == {len(rows)}
    names = [*schema.names, ROW_KIND_COLUMN][: len(arrays)]
    return pa.RecordBatch.from_arrays(arrays, names=names)


def round_trip(rows: list[Any], type_info: TypeInformation) -> list[Any]:
    batch = batch_of(rows, type_info)
    batch.validate(full=True)
    whole = columns_to_rows(batch, type_info)
    # A slice of a larger batch must give the same: nested arrays keep their parent's offsets.
    for index in range(len(rows)):
        assert columns_to_rows(batch.slice(index, 1), type_info) == whole[index : index + 1]
    return whole


@pytest.mark.parametrize(
    ("rows", "type_info"),
    [
        ([True, None, False], Types.BOOLEAN()),
        ([1, None, -128], Types.BYTE()),
        ([1, None, 32767], Types.SHORT()),
        ([1, None, -(2**31)], Types.INT()),
        ([1, None, 2**63 - 1], Types.LONG()),
        ([1.5, None, float("inf")], Types.FLOAT()),
        ([1.23, None, -0.0], Types.DOUBLE()),
        (["a", None, "", "钥匙"], Types.STRING()),
        (["a", None, "钥"], Types.CHAR()),
        ([10**60, None, -1], Types.BIG_INT()),
        (
            [Decimal("1000000000000000000.05999999999999999899999999999"), None, Decimal("1E+3")],
            Types.BIG_DEC(),
        ),
        ([Instant(-(2**60), 999_999_999), None, Instant(0, 0)], Types.INSTANT()),
        ([datetime.date(2014, 9, 13), None, datetime.date(1, 1, 1)], Types.SQL_DATE()),
        ([datetime.time(12, 0, 0, 123_000), None], Types.SQL_TIME()),
        ([datetime.datetime(2018, 3, 11, 3, 0, 0, 123_456), None], Types.SQL_TIMESTAMP()),
        ([b"flink", None, b""], Types.PRIMITIVE_ARRAY(Types.BYTE())),
        ([[1, 2], None, []], Types.PRIMITIVE_ARRAY(Types.LONG())),
        ([[1, None], None, []], Types.BASIC_ARRAY(Types.LONG())),
        (
            [[["a", "b"], ["c", None]], [None], None],
            Types.OBJECT_ARRAY(Types.BASIC_ARRAY(Types.STRING())),
        ),
        ([[datetime.date(2014, 9, 13)], []], Types.LIST(Types.SQL_DATE())),
        (
            [{"a": [1]}, None, {}, {"b": None, "c": []}],
            Types.MAP(Types.STRING(), Types.LIST(Types.INT())),
        ),
        ([("hi", 9), ("x", None)], PAIR),
        ([(("hi", 9), 1), (None, 2)], Types.TUPLE([PAIR, Types.INT()])),
        ([Row(a="x", b=1), Row(a=None, b=None)], ROW_AB),
        ([Row(r=Row(a="x", b=1)), Row(r=None)], Types.ROW_NAMED(["r"], [ROW_AB])),
        ([[Row(a="x", b=1), None]], Types.LIST(ROW_AB)),
        ([{1: Row(a="x", b=1), 2: None}], Types.MAP(Types.INT(), ROW_AB)),
        (
            [None, True, 1, 1.5, bytearray(b"x"), "s", ("a", 1), {"k": [2]}, Row(a=1), Row(1)],
            Types.PICKLED_BYTE_ARRAY(),
        ),
        (
            [Row(p=None, q=[1]), Row(p={1}, q=None)],
            Types.ROW_NAMED(["p", "q"], [Types.PICKLED_BYTE_ARRAY()] * 2),
        ),
        ([Row(r=None)], Types.ROW_NAMED(["r"], [Types.ROW([Types.PICKLED_BYTE_ARRAY()])])),
    ],
)
def test_values_come_back(rows: list[Any], type_info: TypeInformation) -> None:
    assert round_trip(rows, type_info) == rows
    assert round_trip([], type_info) == []


def test_times_are_kept_to_the_millisecond() -> None:
    assert round_trip([datetime.time(1, 2, 3, 456_789)], Types.SQL_TIME()) == [
        datetime.time(1, 2, 3, 456_000)
    ]


def test_rows_have_one_column_per_field_and_others_one_column_named_value() -> None:
    assert data_schema(ROW_AB) == pa.schema({"a": pa.string(), "b": pa.int32()})
    assert data_schema(PAIR) == pa.schema({"f0": pa.string(), "f1": pa.int32()})
    assert data_schema(Types.LONG()) == pa.schema({"value": pa.int64()})
    assert data_schema(Types.PICKLED_BYTE_ARRAY()) == pa.schema({"value": pa.binary()})


@pytest.mark.parametrize("names", [["a"], ["a", "a"]])
def test_a_row_type_whose_names_do_not_match_its_fields_has_no_schema(names: list[str]) -> None:
    with pytest.raises(ValueError, match="RowTypeInfo"):
        data_schema(Types.ROW_NAMED(names, [Types.INT(), Types.INT()]))


def test_rows_arrive_with_names_however_they_were_given() -> None:
    @dataclass
    class Named:
        b: int
        a: str

    given: list[Any] = [
        Row("x", 1),
        ("x", 1),
        ["x", 1],
        {"b": 1, "a": "x"},
        Row(b=1, a="x"),
        Named(1, "x"),
    ]
    assert round_trip(given, ROW_AB) == [Row(a="x", b=1)] * len(given)
    for one in given:
        assert round_trip([one], ROW_AB) == [Row(a="x", b=1)]


def test_tuples_may_be_given_as_rows_and_lists() -> None:
    assert round_trip([("x", 1), Row("x", 1), ["x", 1]], PAIR) == [("x", 1)] * 3
    assert round_trip([Row(f1="x", f0=1)], PAIR) == [("x", 1)]


@given(st.lists(st.one_of(st.none(), st.integers(-(2**70), 2**70))))
def test_integers_arrive_as_they_are_or_not_at_all(values: list[int | None]) -> None:
    for type_info, bits in ((Types.INT(), 32), (Types.LONG(), 64)):
        half = 1 << (bits - 1)
        misfits = [one for one in values if one is not None and not -half <= one < half]
        if misfits:
            with pytest.raises(RecordTypeError, match=f"{bits} bits, got int {misfits[0]}"):
                round_trip(values, type_info)
        else:
            assert round_trip(values, type_info) == values


def test_integers_are_numbers_for_float_types() -> None:
    assert round_trip([1, 2.5, 2**53 + 1], Types.DOUBLE()) == [1.0, 2.5, float(2**53)]


def test_numpy_scalars_and_arrays_are_values_too() -> None:
    assert round_trip([np.int64(3), 4], Types.INT()) == [3, 4]
    assert round_trip([np.float32(0.5)], Types.DOUBLE()) == [0.5]
    assert round_trip([np.array([1, 2])], Types.LIST(Types.INT())) == [[1, 2]]
    assert round_trip([np.bool_(True)], Types.BOOLEAN()) == [True]


@pytest.mark.parametrize(
    ("value", "type_info", "reason"),
    [
        ("a", Types.INT(), "expected an integer, got str 'a'"),
        (1.0, Types.INT(), "expected an integer, got float 1.0"),
        ("1", Types.DOUBLE(), "expected a number"),
        (10**400, Types.DOUBLE(), "a float can hold"),
        (1, Types.STRING(), "expected a str"),
        (b"a", Types.STRING(), "expected a str"),
        ("ab", Types.CHAR(), "expected one character"),
        (1, Types.BOOLEAN(), "expected a boolean"),
        (1.5, Types.BIG_DEC(), "expected a decimal.Decimal"),
        ("2021-01-09", Types.SQL_DATE(), "expected a datetime.date"),
        (datetime.date(2021, 1, 9), Types.SQL_TIMESTAMP(), "expected a datetime.datetime"),
        (5, Types.INSTANT(), "expected an Instant"),
        ("abc", Types.LIST(Types.STRING()), "expected a list"),
        ([1, "a"], Types.LIST(Types.INT()), "expected an integer"),
        ([1, None], Types.PRIMITIVE_ARRAY(Types.INT()), "expected no None"),
        ([1], Types.MAP(Types.INT(), Types.INT()), "expected a dict"),
        ({None: 1}, Types.MAP(Types.INT(), Types.INT()), "expected no None among the keys"),
        ((1,), PAIR, "expected 2 fields, got 1"),
        (("x", 1, 2), ROW_AB, "expected 2 fields, got 3"),
        (("x", "y"), ROW_AB, "field 'b': expected an integer, got str 'y'"),
        ((("x", 1.5),), Types.ROW([ROW_AB]), "field 'f0': field 'b': expected an integer"),
        ({"a": "x"}, ROW_AB, "field 'b' is missing"),
        (Row(a="x", c=1), ROW_AB, "no field ['b']"),
        (None, ROW_AB, "expected a Row"),
        (5, ROW_AB, "expected a Row"),
        ("xy", PAIR, "expected a tuple"),
        (threading.Lock(), Types.PICKLED_BYTE_ARRAY(), "cannot pickle"),
    ],
)
def test_a_record_of_the_wrong_kind_is_named(
    value: object, type_info: TypeInformation, reason: str
) -> None:
    with pytest.raises(RecordTypeError) as raised:
        rows_to_columns([value], type_info)
    first_line = str(raised.value).splitlines()[0]
    assert reason in first_line and str(type_info) in first_line


def test_the_first_record_that_does_not_fit_is_named() -> None:
    with pytest.raises(RecordTypeError, match=r"record 'bad' does not fit .* Integer"):
        rows_to_columns([1, 2, "bad", "worse"], Types.INT())


def test_row_kinds_travel_in_a_column_of_their_own_only_where_needed() -> None:
    inserts = [Row(a="x", b=1), ("y", 2)]
    assert len(rows_to_columns(inserts, ROW_AB)) == 2
    mixed = [*inserts, Row.of_kind(RowKind.DELETE, "z", 3)]
    batch = batch_of(mixed, ROW_AB)
    assert batch.schema.names == ["a", "b", ROW_KIND_COLUMN]
    kinds = [row.get_row_kind() for row in columns_to_rows(batch, ROW_AB)]
    assert kinds == [RowKind.INSERT, RowKind.INSERT, RowKind.DELETE]


def test_columns_of_the_runtime_are_passed_over() -> None:
    batch = batch_of([("x", 1)], ROW_AB).append_column("$timestamp", pa.array([5]))
    assert columns_to_rows(batch, ROW_AB) == [Row(a="x", b=1)]


def test_classes_without_an_importable_name_travel_by_value() -> None:
    class Local:
        def __init__(self, number: int) -> None:
            self.number = number

    values = columns_to_rows(
        batch_of([Local(3), 1], Types.PICKLED_BYTE_ARRAY()), Types.PICKLED_BYTE_ARRAY()
    )
    assert values[0].number == 3 and values[1] == 1


def test_a_dataframes_schema_becomes_a_row_type_that_reads_its_batches() -> None:
    batch = pa.RecordBatch.from_pydict(
        {
            "origin": pa.array(["JFK", None]),
            "big": pa.array(["a", "b"], pa.large_string()),
            "delay": pa.array([1.5, None]),
            "day": pa.array([datetime.date(2013, 1, 1), None]),
            "at": pa.array([datetime.datetime(2013, 1, 1, 5), None], pa.timestamp("us")),
            "price": pa.array([Decimal("1.50"), None], pa.decimal128(10, 2)),
            "raw": pa.array([b"x", None]),
            "tags": pa.array([["a"], None], pa.list_(pa.field("element", pa.string()))),
            "props": pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.int64())),
            "code": pa.array(["x", "y"]).dictionary_encode(),
            "at_ns": pa.array([0, None], pa.timestamp("ns")),
            "inner": pa.array(
                [{"p": 1}, None], pa.struct([pa.field("p", pa.int8(), nullable=False)])
            ),
        }
    )
    type_info = type_info_from_schema(batch.schema)
    assert str(type_info).startswith(
        "RowTypeInfo(origin: String, big: String, delay: Double, day: DateTypeInfo"
    )
    first, second = columns_to_rows(batch, type_info)
    assert first == Row(
        origin="JFK",
        big="a",
        delay=1.5,
        day=datetime.date(2013, 1, 1),
        at=datetime.datetime(2013, 1, 1, 5),
        price=Decimal("1.50"),
        raw=b"x",
        tags=["a"],
        props={"k": 1},
        code="x",
        at_ns=datetime.datetime(1970, 1, 1),
        inner=Row(p=1),
    )
    assert second.inner is None and second.origin is None
    assert round_trip([first, second], type_info) == [first, second]


def test_zoned_timestamps_of_a_dataframe_stay_aware() -> None:
    at = datetime.datetime(2013, 1, 1, 5, tzinfo=datetime.UTC)
    batch = pa.RecordBatch.from_pydict({"at": pa.array([at], pa.timestamp("us", "UTC"))})
    type_info = type_info_from_schema(batch.schema)
    assert columns_to_rows(batch, type_info) == [Row(at=at)]
    assert round_trip([Row(at=at)], type_info) == [Row(at=at)]


def test_decimals_of_fixed_scale_are_rescaled_half_up() -> None:
    type_info = type_info_from_schema(pa.schema({"d": pa.decimal128(5, 2)}))
    assert round_trip([Row(Decimal("1.005")), Row(2)], type_info) == [
        Row(d=Decimal("1.01")),
        Row(d=Decimal("2.00")),
    ]
    with pytest.raises(RecordTypeError):
        rows_to_columns([Row(Decimal("12345.67"))], type_info)


def test_a_column_without_a_counterpart_is_named() -> None:
    with pytest.raises(TypeError, match="column 'd'"):
        type_info_from_schema(pa.schema({"d": pa.duration("us")}))


SCALARS: list[tuple[TypeInformation, st.SearchStrategy[Any]]] = [
    (Types.INT(), st.integers(-(2**31), 2**31 - 1)),
    (Types.DOUBLE(), st.floats(allow_nan=False)),
    (Types.STRING(), st.text(st.characters(codec="utf-8"), max_size=5)),
    (Types.BIG_DEC(), st.decimals(allow_nan=False, allow_infinity=False)),
    (Types.PICKLED_BYTE_ARRAY(), st.tuples(st.integers(), st.text(max_size=3))),
]


def typed_values(depth: int) -> st.SearchStrategy[tuple[TypeInformation, Any]]:
    base = st.one_of(
        [st.tuples(st.just(type_info), st.none() | values) for type_info, values in SCALARS]
    )
    if depth == 0:
        return base
    inner = typed_values(depth - 1)
    return st.one_of(
        base,
        inner.map(lambda pair: (Types.LIST(pair[0]), [pair[1], pair[1]])),
        inner.map(lambda pair: (Types.MAP(Types.STRING(), pair[0]), {"k": pair[1]})),
        st.lists(inner, min_size=1, max_size=3).map(
            lambda pairs: (Types.TUPLE([p[0] for p in pairs]), tuple(p[1] for p in pairs))
        ),
        st.lists(inner, min_size=1, max_size=3).map(
            lambda pairs: (
                Types.ROW([p[0] for p in pairs]),
                Row(**{f"f{i}": p[1] for i, p in enumerate(pairs)}),
            )
        ),
    )


@given(typed_values(3))
def test_any_value_of_any_nesting_comes_back(typed: tuple[TypeInformation, Any]) -> None:
    type_info, value = typed
    assert round_trip([value, value], type_info) == [value, value]
