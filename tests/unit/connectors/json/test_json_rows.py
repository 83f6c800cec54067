"""Rows as JSON: what Flink's schemas read and write, message by message."""

import json
import math
import pickle
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace import Row, Types
from headrace.core.errors import ProgramError, RecordTypeError
from headrace.core.types.java_text import double_text
from headrace.core.types.type_info import TypeInformation
from headrace.datastream.formats.json import (
    JsonRowDeserializationSchema,
    JsonRowSerializationSchema,
)


def reader(*types: TypeInformation, **options: bool) -> JsonRowDeserializationSchema:
    names = [chr(ord("a") + index) for index in range(len(types))]
    builder = JsonRowDeserializationSchema.builder().type_info(Types.ROW_NAMED(names, types))
    for option in options:
        builder = getattr(builder, option)()
    return builder.build()


def read(type_info: TypeInformation, text: str) -> Any:
    return reader(type_info).deserialize(b'{"a": %s}' % text.encode())["a"]


def written(type_info: TypeInformation, value: Any) -> str:
    row_type = Types.ROW_NAMED(["a"], [type_info])
    schema = JsonRowSerializationSchema.builder().with_type_info(row_type).build()
    return schema.serialize(Row(value)).decode().removeprefix('{"a":').removesuffix("}")


BYTES = Types.PRIMITIVE_ARRAY(Types.BYTE())
INNER = Types.ROW_NAMED(["n", "when"], [Types.INT(), Types.SQL_DATE()])
BOTH_WAYS: list[tuple[TypeInformation, str, Any]] = [
    (Types.STRING(), '"é\\"\\n"', 'é"\n'),
    (Types.BOOLEAN(), "true", True),
    (Types.BYTE(), "-128", -128),
    (Types.INT(), "7", 7),
    (Types.LONG(), "9223372036854775807", 2**63 - 1),
    (Types.DOUBLE(), "1.0E10", 1e10),
    (Types.DOUBLE(), "0.1", 0.1),
    (Types.BIG_DEC(), "1.10", Decimal("1.10")),
    (Types.BIG_DEC(), "12345678901234567890.123456789", Decimal("12345678901234567890.123456789")),
    (Types.BIG_INT(), "123456789012345678901234567890", 123456789012345678901234567890),
    (Types.SQL_DATE(), '"1990-10-14"', date(1990, 10, 14)),
    (Types.SQL_TIME(), '"12:12:43Z"', time(12, 12, 43)),
    (Types.SQL_TIMESTAMP(), '"1990-10-14T12:12:43Z"', datetime(1990, 10, 14, 12, 12, 43)),
    (Types.SQL_TIMESTAMP(), '"2020-01-01T00:00:00.011Z"', datetime(2020, 1, 1, 0, 0, 0, 11000)),
    (BYTES, '"AQL/"', b"\x01\x02\xff"),
    (Types.OBJECT_ARRAY(Types.INT()), "[1,null,3]", [1, None, 3]),
    (Types.BASIC_ARRAY(Types.STRING()), "[]", []),
    (Types.MAP(Types.STRING(), Types.LONG()), '{"k":1,"l":null}', {"k": 1, "l": None}),
    (INNER, '{"n":1,"when":"2020-02-29"}', Row(n=1, when=date(2020, 2, 29))),
    (Types.OBJECT_ARRAY(INNER), '[{"n":null,"when":null}]', [Row(n=None, when=None)]),
    (Types.INT(), "null", None),
]


@pytest.mark.parametrize(("type_info", "text", "value"), BOTH_WAYS)
def test_values_are_read_and_written_alike(
    type_info: TypeInformation, text: str, value: Any
) -> None:
    assert read(type_info, text) == value
    assert written(type_info, value) == text


@pytest.mark.parametrize(
    ("type_info", "text", "value"),
    [
        (Types.STRING(), "7", "7"),
        (Types.STRING(), "1.5", "1.5"),
        (Types.STRING(), "true", "true"),
        (Types.STRING(), '{"x": [1]}', '{"x":[1]}'),
        (Types.INT(), '" 7 "', 7),
        (Types.INT(), "7.9", 7),
        (Types.BOOLEAN(), '"TRUE"', True),
        (Types.BOOLEAN(), "1", False),
        (Types.DOUBLE(), '"1e3"', 1000.0),
        (Types.BIG_DEC(), '"0.10"', Decimal("0.10")),
    ],
)
def test_texts_and_numbers_stand_for_each_other(
    type_info: TypeInformation, text: str, value: Any
) -> None:
    assert read(type_info, text) == value
    assert type(read(type_info, text)) is type(value)


@pytest.mark.parametrize(
    ("type_info", "text", "reason"),
    [
        (Types.INT(), '"seven"', "invalid literal"),
        (Types.INT(), "2147483648", "2147483648 is not within -2147483648"),
        (Types.INT(), "true", "true is not a number"),
        (Types.DOUBLE(), "NaN", "NaN is not a JSON number"),
        (Types.SQL_TIME(), '"12:12:43"', "is not a time in UTC"),
        (Types.SQL_TIME(), '"12:12:43.5Z"', "fraction of a second"),
        (Types.OBJECT_ARRAY(Types.INT()), "7", "7 is not an array"),
        (INNER, "[]", r"field 'a': \[\] is not an object"),
        (INNER, '{"n": "x"}', "field 'a': field 'n': invalid literal"),
        (Types.INT(), "7,", "Illegal trailing comma|Expecting property name"),
        (BYTES, '"?"', "base64"),
    ],
)
def test_what_does_not_fit_is_refused_with_the_field_or_ignored(
    type_info: TypeInformation, text: str, reason: str
) -> None:
    with pytest.raises(RecordTypeError, match=reason):
        read(type_info, text)
    ignoring = reader(type_info, Types.INT(), ignore_parse_errors=True)
    row = ignoring.deserialize(b'{"b": 2, "a": %s}' % text.encode())
    assert row is None or row["b"] == 2


def test_a_missing_field_is_none_or_refused_and_other_members_are_left_out() -> None:
    types = [Types.INT(), Types.STRING()]
    assert reader(*types).deserialize(b'{"a": 1, "z": 2}') == Row(a=1, b=None)
    with pytest.raises(RecordTypeError, match="could not find field with name 'b'"):
        reader(*types, fail_on_missing_field=True).deserialize(b'{"a": 1}')
    strict = reader(*types, fail_on_missing_field=True)
    assert strict.deserialize(b'{"a": null, "b": null}') == Row(a=None, b=None)
    with pytest.raises(ProgramError, match="cannot both"):
        reader(*types, fail_on_missing_field=True, ignore_parse_errors=True)


def test_messages_that_hold_no_row() -> None:
    ignoring = reader(Types.INT(), ignore_parse_errors=True)
    assert ignoring.deserialize(b"{no json") is None
    assert ignoring.deserialize(b"\xff\xfe\xff") is None
    assert ignoring.deserialize(b"[" * 100_000) is None
    assert ignoring.deserialize(None) is None
    assert ignoring.deserialize(b'{"a": "x"}') == Row(a=None)
    with pytest.raises(RecordTypeError, match="no json"):
        reader(Types.INT()).deserialize(b"{no json")


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-32"])
def test_a_message_may_be_in_any_encoding_that_json_may_have(encoding: str) -> None:
    types = [Types.STRING(), Types.BIG_DEC()]
    message = '{"a": "Zoë", "b": 0.10}'.encode(encoding)
    assert reader(*types).deserialize(message) == Row(a="Zoë", b=Decimal("0.10"))


@pytest.mark.parametrize(
    ("type_info", "text", "value"),
    [
        (Types.DOUBLE(), "1e400", math.inf),
        (Types.BIG_DEC(), "1e400", Decimal("1e400")),
        (Types.STRING(), '"\\ud800"', "\ud800"),
        (Types.INT(), '1, "a": 2', 2),
    ],
)
def test_what_only_the_standard_parser_reads_is_read_too(
    type_info: TypeInformation, text: str, value: Any
) -> None:
    assert read(type_info, text) == value


def test_a_schema_can_be_shipped() -> None:
    shipped = pickle.loads(pickle.dumps(reader(Types.BIG_DEC(), ignore_parse_errors=True)))
    assert shipped.deserialize(b'{"a": 0.30}') == Row(a=Decimal("0.30"))
    row_type = Types.ROW([Types.INT(), Types.STRING()])
    writer = JsonRowSerializationSchema.builder().with_type_info(row_type).build()
    assert pickle.loads(pickle.dumps(writer)).serialize((1, "x")) == b'{"f0":1,"f1":"x"}'
    assert shipped.get_produced_type() == Types.ROW_NAMED(["a"], [Types.BIG_DEC()])


def test_what_is_no_number_of_jsons_is_written_as_text_and_times_in_utc() -> None:
    assert written(Types.DOUBLE(), float("nan")) == '"NaN"'
    assert written(Types.FLOAT(), float("-inf")) == '"-Infinity"'
    noon = datetime(2020, 1, 1, 12, tzinfo=UTC)
    assert written(Types.SQL_TIMESTAMP(), noon) == '"2020-01-01T12:00:00Z"'


def test_records_that_are_not_of_the_type_are_refused() -> None:
    with pytest.raises(RecordTypeError, match="argument"):
        JsonRowSerializationSchema.builder().with_type_info(
            Types.ROW([Types.INT(), Types.INT()])
        ).build().serialize(Row(1))


@pytest.mark.parametrize(
    "type_info",
    [
        Types.PICKLED_BYTE_ARRAY(),
        Types.INSTANT(),
        Types.MAP(Types.INT(), Types.INT()),
        Types.OBJECT_ARRAY(Types.TUPLE([Types.INT()])),
    ],
)
def test_types_without_json_are_refused_when_the_schema_is_built(
    type_info: TypeInformation,
) -> None:
    with pytest.raises(ProgramError, match="JSON"):
        reader(type_info)
    with pytest.raises(ProgramError, match="JSON"):
        written(type_info, None)


def test_only_rows_have_schemas() -> None:
    for wrong in (Types.INT(), None):
        with pytest.raises(TypeError, match="need a row type"):
            JsonRowDeserializationSchema.builder().type_info(wrong).build()  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match="need a row type"):
        JsonRowSerializationSchema.builder().build()
    with pytest.raises(TypeError, match="text of a JSON Schema"):
        JsonRowDeserializationSchema.builder().json_schema(None)  # pyright: ignore[reportArgumentType]


SCHEMA = """{
  "type": "object",
  "definitions": {"place": {"type": "object", "properties": {"city": {"type": "string"}}}},
  "properties": {
    "id": {"type": "integer"},
    "name": {"type": ["string", "null"]},
    "born": {"type": "string", "format": "date"},
    "at": {"type": "string", "format": "date-time"},
    "raw": {"type": "string", "contentEncoding": "base64"},
    "home": {"oneOf": [{"type": "null"}, {"$ref": "#/definitions/place"}]},
    "tags": {"type": "array", "items": {"type": "boolean"}}
  }
}"""


def test_a_type_is_taken_from_a_json_schema() -> None:
    schema = JsonRowDeserializationSchema.builder().json_schema(SCHEMA).build()
    assert schema.get_produced_type() == Types.ROW_NAMED(
        ["id", "name", "born", "at", "raw", "home", "tags"],
        [
            Types.BIG_DEC(),
            Types.STRING(),
            Types.SQL_DATE(),
            Types.SQL_TIMESTAMP(),
            BYTES,
            Types.ROW_NAMED(["city"], [Types.STRING()]),
            Types.OBJECT_ARRAY(Types.BOOLEAN()),
        ],
    )
    assert schema.deserialize(b'{"id": 1.50, "home": {"city": "EWR"}}')["home"] == Row(city="EWR")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("no", "this is not a JSON Schema"),
        ("[" * 200_000, "this is not a JSON Schema"),
        ("9" * 5000, "this is not a JSON Schema"),
        ('{"type": "string"}', "must describe an object, not String"),
        ('{"type": "object", "properties": {"a": {"type": "null"}}}', "a of the JSON Schema has"),
        (
            '{"type": "object", "properties": {"a": {"anyOf": []}}}',
            "uses 'anyOf', which is not supported",
        ),
        (
            '{"type": "object", "properties": {"a": {"type": ["string", "number"]}}}',
            "several types",
        ),
        ('{"type": "object", "properties": {"a": {"type": "array"}}}', "needs 'items'"),
        ('{"type": "object", "properties": {"a": {"$ref": "#"}}}', "refers to itself"),
        ('{"type": "object", "properties": {"a": {"$ref": "#/x"}}}', "'#/x', which does not exist"),
        ('{"type": "object", "properties": {"a": {"$ref": "http://x"}}}', "outside of it"),
        ('{"type": "object", "properties": {"a": 1}}', "must be an object, not 1"),
        ('{"type": "object"}', "without properties"),
    ],
)
def test_json_schemas_that_are_no_row_are_refused(text: str, reason: str) -> None:
    with pytest.raises(ProgramError, match=reason):
        JsonRowDeserializationSchema.builder().json_schema(text)


@given(st.floats(), st.text(st.characters(codec="utf-8")))
def test_numbers_have_the_digits_of_java_and_texts_the_escapes_of_the_standard_writer(
    number: float, text: str
) -> None:
    digits = double_text(number)
    assert written(Types.DOUBLE(), number) == (digits if math.isfinite(number) else f'"{digits}"')
    assert written(Types.STRING(), text) == json.dumps(text, ensure_ascii=False)


@given(
    st.tuples(
        st.none() | st.text(),
        st.none() | st.integers(-(2**63), 2**63 - 1),
        st.none() | st.floats(allow_nan=False, allow_infinity=False),
        st.none() | st.decimals(allow_nan=False, allow_infinity=False),
        st.none() | st.datetimes(),
        st.none() | st.binary(),
        st.lists(st.none() | st.text()),
    )
)
def test_what_is_written_is_read_again(values: tuple[Any, ...]) -> None:
    types = [
        Types.STRING(), Types.LONG(), Types.DOUBLE(), Types.BIG_DEC(), Types.SQL_TIMESTAMP(), BYTES,
        Types.LIST(Types.STRING()),
    ]  # fmt: skip
    row_type = Types.ROW_NAMED(list("abcdefg"), types)
    writer = JsonRowSerializationSchema.builder().with_type_info(row_type).build()
    assert tuple(reader(*types).deserialize(writer.serialize(values))) == values
