"""Texts of typed records, as Java prints them."""

import datetime
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.types.java_text import double_text, float_text, text_function
from headrace.core.types.rows import Row, RowKind
from headrace.core.types.time_values import Instant
from headrace.core.types.type_info import TypeInformation, Types

HI_9 = Types.TUPLE([Types.STRING(), Types.INT()])
A_0 = Types.ROW([Types.STRING(), Types.INT()])


@pytest.mark.parametrize(
    ("value", "type_info", "text"),
    [
        (("a", 1), Types.PICKLED_BYTE_ARRAY(), "('a', 1)"),
        ({"k": 2}, Types.PICKLED_BYTE_ARRAY(), "{'k': 2}"),
        ("it's", Types.STRING(), "it's"),
        (-7, Types.LONG(), "-7"),
        (10**40, Types.BIG_INT(), "1" + "0" * 40),
        (True, Types.BOOLEAN(), "true"),
        (None, Types.STRING(), "null"),
        (None, A_0, "null"),
        (Decimal("1000000000000000000.05"), Types.BIG_DEC(), "1000000000000000000.05"),
        (Decimal("1E+3"), Types.BIG_DEC(), "1E+3"),
        (Decimal("1.50"), Types.BIG_DEC(), "1.50"),
        (("hi", 9), HI_9, "(hi,9)"),
        (("hi", None), HI_9, "(hi,null)"),
        (Row("a", 0), A_0, "+I[a, 0]"),
        (("a", 0), A_0, "+I[a, 0]"),
        (Row.of_kind(RowKind.UPDATE_BEFORE, "a", None), A_0, "-U[a, null]"),
        ([1, None, 3], Types.BASIC_ARRAY(Types.INT()), "[1, null, 3]"),
        ([[1.0], []], Types.LIST(Types.LIST(Types.DOUBLE())), "[[1.0], []]"),
        ({"k": True, "k2": None}, Types.MAP(Types.STRING(), Types.BOOLEAN()), "{k=true, k2=null}"),
        (datetime.date(2021, 1, 9), Types.SQL_DATE(), "2021-01-09"),
        (datetime.time(12, 0, 0, 123_000), Types.SQL_TIME(), "12:00:00"),
        (
            datetime.datetime(2021, 1, 9, 12, 0, 0, 11_000),
            Types.SQL_TIMESTAMP(),
            "2021-01-09 12:00:00.011",
        ),
        (datetime.datetime(2021, 1, 9, 12), Types.SQL_TIMESTAMP(), "2021-01-09 12:00:00.0"),
        (Instant(1, 500_000_000), Types.INSTANT(), "1970-01-01T00:00:01.500Z"),
        (Instant(0, 0), Types.INSTANT(), "1970-01-01T00:00:00Z"),
        (Instant(253_402_300_800, 1), Types.INSTANT(), "+10000-01-01T00:00:00.000000001Z"),
        (b"\x00\xff", Types.PRIMITIVE_ARRAY(Types.BYTE()), "[0, -1]"),
        ((bytearray(b"fli"),), Types.ROW([Types.PICKLED_BYTE_ARRAY()]), "+I[[102, 108, 105]]"),
        (({"a": 1},), Types.ROW([Types.PICKLED_BYTE_ARRAY()]), "+I[{'a': 1}]"),
    ],
)
def test_values_have_the_texts_that_java_gives_them(
    value: object, type_info: TypeInformation, text: str
) -> None:
    assert text_function(type_info)(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1.0, "1.0"),
        (1.23, "1.23"),
        (1e10, "1.0E10"),
        (9999999.0, "9999999.0"),
        (1e7, "1.0E7"),
        (0.001, "0.001"),
        (0.00099, "9.9E-4"),
        (-0.0, "-0.0"),
        (5e-324, "4.9E-324"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
        (float("nan"), "NaN"),
        (float("-inf"), "-Infinity"),
    ],
)
def test_doubles_have_the_texts_that_java_gives_them(value: float, text: str) -> None:
    assert double_text(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(1.23, "1.23"), (16777216.0, "1.6777216E7"), (1e40, "Infinity"), (1e-45, "1.4E-45")],
)
def test_floats_have_the_texts_that_java_gives_them(value: float, text: str) -> None:
    assert float_text(value) == text


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_the_text_of_a_double_gives_the_double_back(value: float) -> None:
    assert float(double_text(value)) == value
