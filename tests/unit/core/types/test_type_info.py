"""Type informations: texts, equality, pickling, conversion to carried values."""

import datetime
import pickle

import pytest

from headrace.core.types.rows import Row
from headrace.core.types.time_values import Instant
from headrace.core.types.type_info import TypeInformation, Types

TEXTS = [
    (Types.STRING(), "String"),
    (Types.BYTE(), "Byte"),
    (Types.BOOLEAN(), "Boolean"),
    (Types.SHORT(), "Short"),
    (Types.INT(), "Integer"),
    (Types.LONG(), "Long"),
    (Types.FLOAT(), "Float"),
    (Types.DOUBLE(), "Double"),
    (Types.CHAR(), "Char"),
    (Types.BIG_INT(), "BigInteger"),
    (Types.BIG_DEC(), "BigDecimal"),
    (Types.INSTANT(), "Instant"),
    (Types.SQL_DATE(), "DateTypeInfo"),
    (Types.SQL_TIME(), "TimeTypeInfo"),
    (Types.SQL_TIMESTAMP(), "TimestampTypeInfo"),
    (Types.PICKLED_BYTE_ARRAY(), "PickledByteArrayTypeInfo"),
    (Types.PRIMITIVE_ARRAY(Types.INT()), "PrimitiveArrayTypeInfo<Integer>"),
    (Types.BASIC_ARRAY(Types.STRING()), "BasicArrayTypeInfo<String>"),
    (Types.OBJECT_ARRAY(Types.SQL_DATE()), "ObjectArrayTypeInfo<DateTypeInfo>"),
    (Types.MAP(Types.INT(), Types.STRING()), "MapTypeInfo<Integer, String>"),
    (Types.LIST(Types.INT()), "ListTypeInfo<Integer>"),
    (Types.ROW([Types.INT()]), "RowTypeInfo(Integer)"),
    (
        Types.ROW_NAMED(["a", "b"], [Types.INT(), Types.STRING()]),
        "RowTypeInfo(a: Integer, b: String)",
    ),
    (Types.TUPLE([Types.STRING(), Types.INT()]), "TupleTypeInfo(String, Integer)"),
]


@pytest.mark.parametrize(("type_info", "text"), TEXTS)
def test_types_print_as_in_pyflink(type_info: TypeInformation, text: str) -> None:
    assert str(type_info) == repr(type_info) == text


@pytest.mark.parametrize("type_info", [type_info for type_info, _ in TEXTS])
def test_a_pickled_type_is_equal_and_prints_alike(type_info: TypeInformation) -> None:
    copy = pickle.loads(pickle.dumps(type_info))
    assert copy == type_info and hash(copy) == hash(type_info) and str(copy) == str(type_info)


def test_types_of_different_texts_differ() -> None:
    assert len({type_info for type_info, _ in TEXTS}) == len(TEXTS)


def test_default_names_are_names() -> None:
    given, defaulted = Types.ROW_NAMED(["f0"], [Types.INT()]), Types.ROW([Types.INT()])
    assert given == defaulted and hash(Types.LIST(given)) == hash(Types.LIST(defaulted))
    assert Types.ROW_NAMED(["a"], [Types.INT()]) != defaulted


def test_row_types_know_their_fields() -> None:
    row = Types.ROW_NAMED(["a", "b"], [Types.INT(), Types.STRING()])
    assert row.get_field_names() == ["a", "b"]
    assert row.get_field_index("b") == 1
    assert row.get_field_types() == [Types.INT(), Types.STRING()]
    with pytest.raises(ValueError, match="no field 'c'"):
        row.get_field_index("c")


def test_names_and_types_of_unequal_number_are_not_refused_yet() -> None:
    assert Types.ROW_NAMED(["a"], [Types.INT(), Types.INT()]).get_field_names() == ["a"]


def test_tuples_end_at_twenty_five_fields() -> None:
    Types.TUPLE([Types.INT()] * 25)
    with pytest.raises(ValueError, match="at most 25"):
        Types.TUPLE([Types.INT()] * 26)


def test_arrays_refuse_elements_of_another_family() -> None:
    with pytest.raises(TypeError):
        Types.PRIMITIVE_ARRAY(Types.STRING())
    with pytest.raises(TypeError):
        Types.BASIC_ARRAY(Types.LIST(Types.INT()))


@pytest.mark.parametrize(
    ("type_info", "value"),
    [
        (Types.SQL_DATE(), datetime.date(2021, 1, 9)),
        (Types.SQL_TIME(), datetime.time(12, 30, 1, 123_456)),
        (Types.SQL_TIMESTAMP(), datetime.datetime(2021, 1, 9, 12, 0, 0, 11_000)),
        (Types.INSTANT(), Instant(1, 2)),
        (Types.LIST(Types.SQL_DATE()), [datetime.date(1969, 12, 31)]),
        (Types.MAP(Types.STRING(), Types.SQL_DATE()), {"a": datetime.date(1970, 1, 2)}),
        (Types.TUPLE([Types.SQL_DATE()]), (datetime.date(1970, 1, 2),)),
        (Types.ROW([Types.SQL_DATE()]), Row(f0=datetime.date(1970, 1, 2))),
    ],
)
def test_carried_values_come_back(type_info: TypeInformation, value: object) -> None:
    assert type_info.need_conversion()
    assert type_info.from_internal_type(type_info.to_internal_type(value)) == value
    assert type_info.to_internal_type(None) is None
    assert type_info.from_internal_type(None) is None


def test_dates_are_carried_as_days_and_rows_as_tuples() -> None:
    row = Types.ROW_NAMED(["a", "d"], [Types.INT(), Types.SQL_DATE()])
    carried = (7, 1)
    assert row.to_internal_type(Row(d=datetime.date(1970, 1, 2), a=7)) == carried
    assert row.to_internal_type({"a": 7, "d": datetime.date(1970, 1, 2)}) == carried
    assert row.to_internal_type((7, datetime.date(1970, 1, 2))) == carried
