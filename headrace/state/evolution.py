"""Migration of stored values to a changed state type, and the check of whether it is possible.

Allowed, at any depth of structs, lists and the values of maps: a field added (null, or the default that the program
declares), dropped, moved, renamed as declared, and a number or date widened. Everything else is refused with the field
named; so is every change of a key. Fields are known by their names.

Source: Flink TypeSerializerSchemaCompatibility; there only POJOs and Avro evolve.
"""

import base64
from collections.abc import Iterator, Mapping
from typing import Any, Final

import pyarrow as pa

from headrace.core.errors import ErrorDomain, HeadraceError
from headrace.functions.state import FieldChange

FieldChanges = Mapping[str, FieldChange]
"""Declared changes by the field's path: names joined by dots; list elements and map values use their container's path.
"""
_WIDER: Final[dict[pa.DataType, frozenset[pa.DataType]]] = {
    pa.int8(): frozenset({pa.int16(), pa.int32(), pa.int64()}),
    pa.int16(): frozenset({pa.int32(), pa.int64()}),
    pa.int32(): frozenset({pa.int64()}),
    pa.float32(): frozenset({pa.float64()}),
}


class StateIncompatibleError(HeadraceError):
    """The state stored under a name is incompatible with the state that the program declares now."""

    domain, recoverable = ErrorDomain.USER, False

    def __init__(self, reason: str, advice: str = "") -> None:
        super().__init__(f"{reason}: {advice}" if advice else reason)
        self.reason = reason


def is_widening(written: pa.DataType, requested: pa.DataType) -> bool:
    """Return whether every written value equals a value of the requested type."""
    if pa.types.is_date32(written):
        return pa.types.is_timestamp(requested) and requested.tz is None
    return requested in _WIDER.get(written, frozenset())


def check_evolution(
    written: pa.Schema,
    requested: pa.Schema,
    changes: FieldChanges | None = None,
    fixed: frozenset[str] = frozenset(),
) -> list[str]:
    """Return why values of `written` cannot be read as `requested`: one sentence per field; empty if they can.

    Columns named in `fixed`, such as keys, may not change at all.
    """
    found: list[str] = []
    for column in requested:
        index = written.get_field_index(column.name)
        if index < 0:
            found.append(f"column '{column.name}' was not stored")
            continue
        old = written.field(index).type
        if column.name in fixed:
            if old != column.type:
                found.append(
                    f"'{column.name}' was {old} and is {column.type} now: it cannot change"
                )
        else:
            found += _differences("", old, column.type, changes or {})
    return found


def _differences(
    path: str, old: pa.DataType, new: pa.DataType, changes: FieldChanges
) -> Iterator[str]:
    kinds = pa.types
    if old == new or is_widening(old, new):
        return
    if kinds.is_struct(old) and kinds.is_struct(new):
        for field in new:
            place = _joined(path, field.name)
            name = _old_name(place, field.name, changes)
            index = old.get_field_index(name)
            if index >= 0:
                yield from _differences(place, old.field(index).type, field.type, changes)
            elif name != field.name:
                yield f"field '{place}' is declared to have been '{name}', which was not stored"
            elif not field.nullable and _default(place, changes) is None:
                yield f"field '{place}' is new and not nullable: declare a default"
    elif kinds.is_list(old) and kinds.is_list(new):
        yield from _differences(path, old.value_type, new.value_type, changes)
    elif kinds.is_map(old) and kinds.is_map(new):
        if old.key_type != new.key_type:
            yield f"{_named(path)}: keys of a map were {old.key_type} and are {new.key_type} now"
        yield from _differences(path, old.item_type, new.item_type, changes)
    else:
        yield f"{_named(path)} was {old} and is {new} now"


def evolve(
    array: pa.Array, requested: pa.DataType, changes: FieldChanges | None = None, path: str = ""
) -> pa.Array:
    """Return stored values as values of the requested type; call `check_evolution` first."""
    kinds, old = pa.types, array.type
    changes = changes or {}
    if old == requested:
        return array
    if kinds.is_struct(requested):
        return _evolve_struct(array, requested, changes, path)
    if kinds.is_list(requested):
        elements = evolve(array.flatten(), requested.value_type, changes, path)
        return pa.ListArray.from_arrays(_offsets(array), elements, type=requested)
    if kinds.is_map(requested):
        first = array.offsets[0].as_py()
        count = array.offsets[len(array)].as_py() - first
        items = evolve(array.items.slice(first, count), requested.item_type, changes, path)
        keys = array.keys.slice(first, count)
        return pa.MapArray.from_arrays(_offsets(array), keys, items, type=requested)
    return array.cast(requested)


def _evolve_struct(
    array: pa.Array, requested: pa.DataType, changes: FieldChanges, path: str
) -> pa.Array:
    columns: list[pa.Array] = []
    for field in requested:
        place = _joined(path, field.name)
        index = array.type.get_field_index(_old_name(place, field.name, changes))
        if index >= 0:
            columns.append(evolve(array.field(index), field.type, changes, place))
        else:
            default = _default(place, changes)
            columns.append(pa.array([default] * len(array), type=field.type))
    mask = array.is_null() if array.null_count else None
    return pa.StructArray.from_arrays(columns, fields=list(requested), mask=mask)


def _offsets(array: pa.Array) -> pa.Array:
    """Return offsets from 0, null where a value is null."""
    starts = array.offsets.to_numpy()
    offsets = pa.array(starts - starts[0], type=pa.int32())
    if not array.null_count:
        return offsets
    is_null = [*array.is_null().to_pylist(), False]
    return pa.array(
        [
            None if null else offset
            for null, offset in zip(is_null, offsets.to_pylist(), strict=True)
        ],
        type=pa.int32(),
    )


def _joined(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _named(path: str) -> str:
    return f"field '{path}'" if path else "the value"


def _old_name(place: str, name: str, changes: FieldChanges) -> str:
    change = changes.get(place)
    return name if change is None or change.renamed_from is None else change.renamed_from


def _default(place: str, changes: FieldChanges) -> Any:
    change = changes.get(place)
    return None if change is None else change.default


def schema_text(schema: pa.Schema) -> str:
    """Return a schema as text for a chunk's attributes."""
    return base64.b64encode(schema.serialize()).decode()


def schema_of_text(text: str) -> pa.Schema:
    """Return the schema of `schema_text`."""
    return pa.ipc.read_schema(pa.BufferReader(base64.b64decode(text)))
