"""From a JSON Schema to the type of the rows that it describes.

Source: Flink JsonRowSchemaConverter.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from headrace.core.decode_errors import DECODE_ERRORS
from headrace.core.errors import ProgramError
from headrace.core.types.type_info import RowTypeInfo, TypeInformation, Types

_NOT_SUPPORTED: Final = ("allOf", "anyOf", "not")
_DEPTH_MAX: Final = 64
_FORMATS: Final = {
    "date": Types.SQL_DATE(), "time": Types.SQL_TIME(), "date-time": Types.SQL_TIMESTAMP(),
}  # fmt: skip


def type_of_json_schema(json_schema: str) -> RowTypeInfo:
    """Return the row type; ProgramError for a schema that is no object's, or says what a row cannot be."""
    try:
        root = json.loads(json_schema)
    except DECODE_ERRORS as error:
        raise ProgramError(f"this is no JSON Schema: {error}") from None
    found = _convert("the schema", root, root, 0)
    if not isinstance(found, RowTypeInfo):
        raise ProgramError(f"a schema of rows describes an object, not {found}")
    return found


def _convert(place: str, node: Any, root: Any, depth: int) -> TypeInformation:
    if not isinstance(node, Mapping):
        raise ProgramError(f"{place} of the JSON Schema is no object, but {node!r}")
    schema = cast(Mapping[str, Any], node)
    for word in _NOT_SUPPORTED:
        if word in schema:
            raise ProgramError(
                f"{place} of the JSON Schema says '{word}', which no type stands for"
            )
    if depth > _DEPTH_MAX:
        raise ProgramError(
            f"{place} of the JSON Schema refers to itself, and no type is without end"
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
                f"{place} of the JSON Schema has the type {kind!r}, which no type stands for"
            )


def _not_null(place: str, choices: Sequence[Any]) -> Any:
    """Return the only choice beside null."""
    kinds = [one for one in choices if one != "null" and not _is_null(one)]
    if len(kinds) != 1:
        raise ProgramError(
            f"{place} of the JSON Schema is one of several kinds, where a type is one or null"
        )
    return kinds[0]


def _is_null(choice: Any) -> bool:
    return isinstance(choice, Mapping) and cast(Mapping[str, Any], choice).get("type") == "null"


def _referred(reference: Any, root: Any) -> Any:
    """Follow a reference within the schema: `#/definitions/name`."""
    text = str(reference)
    if not text.startswith("#"):
        raise ProgramError(f"the JSON Schema refers to '{text}', which lies outside of it")
    node = root
    for part in text.removeprefix("#").strip("/").split("/"):
        name = part.replace("~1", "/").replace("~0", "~")
        if name:
            if not isinstance(node, Mapping) or name not in node:
                raise ProgramError(f"the JSON Schema refers to '{text}', which is not there")
            node = cast(Mapping[str, Any], node)[name]
    return node
