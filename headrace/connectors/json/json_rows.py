"""Reads and writes rows as JSON messages, one object per message, whose members are the fields of a row.

The type of the rows is declared, or taken from a JSON Schema.

Source: Flink JsonRowDeserializationSchema, JsonRowSerializationSchema, JsonRowSchemaConverter.
"""

import json
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, ClassVar, Final, NoReturn, cast

import msgspec

from headrace.connectors.json.json_values import BAD_VALUE, holds_decimals, json_reader, json_writer
from headrace.core.errors import DECODE_ERRORS, ProgramError, RecordTypeError
from headrace.core.types.type_info import RowTypeInfo, TypeInformation, Types
from headrace.functions.serialization import DeserializationSchema, SerializationSchema

_NOT_SUPPORTED: Final = ("allOf", "anyOf", "not")
_DEPTH_MAX: Final = 64
_FORMATS: Final = {
    "date": Types.SQL_DATE(), "time": Types.SQL_TIME(), "date-time": Types.SQL_TIMESTAMP(),
}  # fmt: skip


def type_of_json_schema(json_schema: str) -> RowTypeInfo:
    """Return the row type of a JSON Schema; ProgramError if it does not describe an object that a row can hold."""
    try:
        root = json.loads(json_schema)
    except DECODE_ERRORS as error:
        raise ProgramError(f"this is not a JSON Schema: {error}") from None
    found = _convert("the schema", root, root, 0)
    if not isinstance(found, RowTypeInfo):
        raise ProgramError(f"the JSON Schema of rows must describe an object, not {found}")
    return found


def _convert(place: str, node: Any, root: Any, depth: int) -> TypeInformation:
    if not isinstance(node, Mapping):
        raise ProgramError(f"{place} of the JSON Schema must be an object, not {node!r}")
    schema = cast(Mapping[str, Any], node)
    for word in _NOT_SUPPORTED:
        if word in schema:
            raise ProgramError(f"{place} of the JSON Schema uses '{word}', which is not supported")
    if depth > _DEPTH_MAX:
        raise ProgramError(
            f"{place} of the JSON Schema refers to itself, but types cannot be recursive"
        )
    if "$ref" in schema:
        return _convert(place, _referred(schema["$ref"], root), root, depth + 1)
    if "oneOf" in schema:
        return _convert(place, _not_null(place, schema["oneOf"]), root, depth + 1)
    kind = schema.get("type")
    if isinstance(kind, list):
        kind = _not_null(place, cast(list[Any], kind))
    return _typed(place, kind, schema, root, depth)


def _typed(
    place: str, kind: object, schema: Mapping[str, Any], root: Any, depth: int
) -> TypeInformation:
    match kind:
        case "object":
            properties = cast(dict[str, Any], schema.get("properties") or {})
            if not properties:
                raise ProgramError(f"{place} of the JSON Schema is an object without properties")
            types = [_convert(name, one, root, depth + 1) for name, one in properties.items()]
            return Types.ROW_NAMED(list(properties), types)
        case "array":
            if not isinstance(schema.get("items"), Mapping):
                raise ProgramError(f"{place} of the JSON Schema needs 'items' of one kind")
            return Types.OBJECT_ARRAY(_convert(f"{place}[]", schema["items"], root, depth + 1))
        case "string":
            if schema.get("contentEncoding") == "base64":
                return Types.PRIMITIVE_ARRAY(Types.BYTE())
            return _FORMATS.get(schema.get("format", ""), Types.STRING())
        case "number" | "integer":
            return Types.BIG_DEC()
        case "boolean":
            return Types.BOOLEAN()
        case _:
            raise ProgramError(
                f"{place} of the JSON Schema has the type {kind!r}, which is not supported"
            )


def _not_null(place: str, choices: Sequence[Any]) -> Any:
    """Return the only choice apart from null."""
    kinds = [one for one in choices if one != "null" and not _is_null(one)]
    if len(kinds) != 1:
        raise ProgramError(
            f"{place} of the JSON Schema allows several types: only one type, or one type and null, is supported"
        )
    return kinds[0]


def _is_null(choice: Any) -> bool:
    return isinstance(choice, Mapping) and cast(Mapping[str, Any], choice).get("type") == "null"


def _referred(reference: Any, root: Any) -> Any:
    """Follow a reference within the schema: `#/definitions/name`."""
    text = str(reference)
    if not text.startswith("#"):
        raise ProgramError(f"the JSON Schema refers to '{text}', which is outside of it")
    node = root
    for part in text.removeprefix("#").strip("/").split("/"):
        name = part.replace("~1", "/").replace("~0", "~")
        if name:
            if not isinstance(node, Mapping) or name not in node:
                raise ProgramError(f"the JSON Schema refers to '{text}', which does not exist")
            node = cast(Mapping[str, Any], node)[name]
    return node


class JsonRowDeserializationSchema(DeserializationSchema):
    """Converts a JSON object to a row; made by `builder()`. Members that are not fields are skipped.

    Example:
        >>> from headrace import Types
        >>> row = Types.ROW_NAMED(["id", "paid"], [Types.INT(), Types.BOOLEAN()])
        >>> schema = JsonRowDeserializationSchema.builder().type_info(row).build()
        >>> schema.deserialize(b'{"id": 7, "note": "late"}')
        Row(id=7, paid=None)
    """

    # PyFlink programs find the builder in here.
    Builder: ClassVar[type["JsonRowDeserializationSchemaBuilder"]]

    def __init__(
        self, type_info: RowTypeInfo, needs_all_fields: bool, ignores_parse_errors: bool
    ) -> None:
        if needs_all_fields and ignores_parse_errors:
            raise ProgramError(
                "a JSON schema cannot both fail_on_missing_field and ignore_parse_errors: choose one"
            )
        self._type_info = type_info
        self._needs_all_fields = needs_all_fields
        self._ignores_parse_errors = ignores_parse_errors
        self._convert = json_reader(
            type_info, needs_all_fields=needs_all_fields, is_lenient=ignores_parse_errors
        )
        self._parse_float = Decimal if holds_decimals(type_info) else None
        self._decoder = msgspec.json.Decoder(float_hook=self._parse_float)

    @staticmethod
    def builder() -> "JsonRowDeserializationSchemaBuilder":
        """Return a builder, which needs a type or a JSON Schema."""
        return JsonRowDeserializationSchemaBuilder()

    def deserialize(self, message: bytes | None) -> Any:
        """Return the row, or None for no message, null, or unreadable JSON that is ignored. RecordTypeError."""
        if message is None:
            return None
        try:
            return self._convert(self._parse(message))
        except BAD_VALUE as error:
            if self._ignores_parse_errors:
                return None
            text = bytes(message).decode("utf-8", "replace")
            raise RecordTypeError(text, str(self._type_info), str(error)) from None

    def _parse(self, message: bytes) -> Any:
        try:
            return self._decoder.decode(message)
        except ValueError:
            # Other encodings than UTF-8, half a surrogate pair and numbers beyond a double are read nevertheless;
            # for other text the standard parser reports the mistake and its place.
            return json.loads(
                message, parse_float=self._parse_float, parse_constant=_refuse_constant
            )

    def get_produced_type(self) -> TypeInformation:
        return self._type_info

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._type_info, self._needs_all_fields, self._ignores_parse_errors)


class JsonRowDeserializationSchemaBuilder:
    """Builds a JsonRowDeserializationSchema."""

    def __init__(self) -> None:
        self._type_info: TypeInformation | None = None
        self._needs_all_fields = False
        self._ignores_parse_errors = False

    def type_info(self, type_info: TypeInformation) -> "JsonRowDeserializationSchemaBuilder":
        """Set the fields and their types, as a row type."""
        self._type_info = type_info
        return self

    def json_schema(self, json_schema: str) -> "JsonRowDeserializationSchemaBuilder":
        """Set fields and types from a JSON Schema: numbers become BIG_DEC, arrays OBJECT_ARRAY."""
        if not isinstance(json_schema, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"json_schema needs the text of a JSON Schema, not {json_schema!r}")
        self._type_info = type_of_json_schema(json_schema)
        return self

    def fail_on_missing_field(self) -> "JsonRowDeserializationSchemaBuilder":
        """Refuse a message without one of the fields, which otherwise is None."""
        self._needs_all_fields = True
        return self

    def ignore_parse_errors(self) -> "JsonRowDeserializationSchemaBuilder":
        """Skip messages that are not JSON, and set fields to None whose values do not fit."""
        self._ignores_parse_errors = True
        return self

    def build(self) -> JsonRowDeserializationSchema:
        row_type = _require_row(self._type_info)
        return JsonRowDeserializationSchema(
            row_type, self._needs_all_fields, self._ignores_parse_errors
        )


class JsonRowSerializationSchema(SerializationSchema):
    """Converts a row to a JSON object with members in the order of the fields; made by `builder()`.

    Example:
        >>> from headrace import Row, Types
        >>> row = Types.ROW_NAMED(["id", "paid"], [Types.INT(), Types.BOOLEAN()])
        >>> JsonRowSerializationSchema.builder().with_type_info(row).build().serialize(Row(7, True))
        b'{"id":7,"paid":true}'
    """

    # PyFlink programs find the builder in here.
    Builder: ClassVar[type["JsonRowSerializationSchemaBuilder"]]

    def __init__(self, type_info: RowTypeInfo) -> None:
        self._type_info = type_info
        self._convert = json_writer(type_info)

    @staticmethod
    def builder() -> "JsonRowSerializationSchemaBuilder":
        """Return a builder, which needs a type."""
        return JsonRowSerializationSchemaBuilder()

    def serialize(self, element: Any) -> bytes:
        """Return the UTF-8 text of one object; RecordTypeError for a record that is not of the type."""
        try:
            return self._convert(element)
        except BAD_VALUE as error:
            raise RecordTypeError(element, str(self._type_info), str(error)) from None

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._type_info,)


class JsonRowSerializationSchemaBuilder:
    """Builds a JsonRowSerializationSchema."""

    def __init__(self) -> None:
        self._type_info: TypeInformation | None = None

    def with_type_info(self, type_info: TypeInformation) -> "JsonRowSerializationSchemaBuilder":
        """Set the fields and their types, as a row type."""
        self._type_info = type_info
        return self

    def build(self) -> JsonRowSerializationSchema:
        return JsonRowSerializationSchema(_require_row(self._type_info))


def _require_row(type_info: TypeInformation | None) -> RowTypeInfo:
    if not isinstance(type_info, RowTypeInfo):
        raise TypeError(f"JSON rows need a row type, such as Types.ROW_NAMED, not {type_info!r}")
    return type_info


def _refuse_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not a JSON number")


JsonRowDeserializationSchema.Builder = JsonRowDeserializationSchemaBuilder
JsonRowSerializationSchema.Builder = JsonRowSerializationSchemaBuilder
