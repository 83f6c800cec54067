"""Rows as messages of JSON: one object per message, its members the fields of a row.

Source: Flink JsonRowDeserializationSchema, JsonRowSerializationSchema.
"""

import json
from decimal import Decimal
from typing import Any, ClassVar, NoReturn

from headrace.core.errors import ProgramError, RecordTypeError
from headrace.core.types.type_info import RowTypeInfo, TypeInformation
from headrace.functions.json_schema import type_of_json_schema
from headrace.functions.json_values import BAD_VALUE, holds_decimals, json_reader, json_writer
from headrace.functions.serialization import DeserializationSchema, SerializationSchema


class JsonRowDeserializationSchema(DeserializationSchema):
    """JSON object to row; made by `builder()`. Members that are no fields are left out.

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
        self._parse_float = Decimal if holds_decimals(type_info) else float

    @staticmethod
    def builder() -> "JsonRowDeserializationSchemaBuilder":
        """Begin; a type, or a JSON Schema, is needed."""
        return JsonRowDeserializationSchemaBuilder()

    def deserialize(self, message: bytes | None) -> Any:
        """Return the row, or None for no message, null, or JSON that cannot be read and is ignored. RecordTypeError."""
        if message is None:
            return None
        try:
            parsed = json.loads(
                message, parse_float=self._parse_float, parse_constant=_refuse_constant
            )
            return self._convert(parsed)
        except BAD_VALUE as error:
            if self._ignores_parse_errors:
                return None
            text = bytes(message).decode("utf-8", "replace")
            raise RecordTypeError(text, str(self._type_info), str(error)) from None

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
        """Name the fields and their types, as a row type."""
        self._type_info = type_info
        return self

    def json_schema(self, json_schema: str) -> "JsonRowDeserializationSchemaBuilder":
        """Take fields and types from a JSON Schema: numbers become BIG_DEC, arrays OBJECT_ARRAY."""
        if not isinstance(json_schema, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"json_schema needs the text of a JSON Schema, not {json_schema!r}")
        self._type_info = type_of_json_schema(json_schema)
        return self

    def fail_on_missing_field(self) -> "JsonRowDeserializationSchemaBuilder":
        """Refuse a message without one of the fields, which is None otherwise."""
        self._needs_all_fields = True
        return self

    def ignore_parse_errors(self) -> "JsonRowDeserializationSchemaBuilder":
        """Leave out messages that are no JSON, and let fields be None whose values do not fit."""
        self._ignores_parse_errors = True
        return self

    def build(self) -> JsonRowDeserializationSchema:
        row_type = _require_row(self._type_info)
        return JsonRowDeserializationSchema(
            row_type, self._needs_all_fields, self._ignores_parse_errors
        )


class JsonRowSerializationSchema(SerializationSchema):
    """Row to JSON object, members in the order of the fields; made by `builder()`.

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
        """Begin; a type is needed."""
        return JsonRowSerializationSchemaBuilder()

    def serialize(self, element: Any) -> bytes:
        """Return the UTF-8 text of one object; RecordTypeError for a record that is not of the type."""
        try:
            return self._convert(element).encode()
        except BAD_VALUE as error:
            raise RecordTypeError(element, str(self._type_info), str(error)) from None

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._type_info,)


class JsonRowSerializationSchemaBuilder:
    """Builds a JsonRowSerializationSchema."""

    def __init__(self) -> None:
        self._type_info: TypeInformation | None = None

    def with_type_info(self, type_info: TypeInformation) -> "JsonRowSerializationSchemaBuilder":
        """Name the fields and their types, as a row type."""
        self._type_info = type_info
        return self

    def build(self) -> JsonRowSerializationSchema:
        return JsonRowSerializationSchema(_require_row(self._type_info))


def _require_row(type_info: TypeInformation | None) -> RowTypeInfo:
    if not isinstance(type_info, RowTypeInfo):
        raise TypeError(f"rows of JSON need a row type, such as Types.ROW_NAMED, not {type_info!r}")
    return type_info


def _refuse_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is no number of JSON's")


JsonRowDeserializationSchema.Builder = JsonRowDeserializationSchemaBuilder
JsonRowSerializationSchema.Builder = JsonRowSerializationSchemaBuilder
