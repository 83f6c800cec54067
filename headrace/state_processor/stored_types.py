"""Between the types that a state is stored with and those that other engines give back: nullable, longer or wider.

Fields must be the same ones by name; numbers may become wider, never narrower. Nothing is rounded or cut.
"""

from collections.abc import Iterator

import pyarrow as pa

from headrace.state.evolution import evolve, is_widening


def nullable_type(stored: pa.DataType) -> pa.DataType:
    """Return the type with fields that may be null, at any depth, as engines have them that know no other."""
    kinds = pa.types
    if kinds.is_struct(stored):
        return pa.struct([pa.field(one.name, nullable_type(one.type)) for one in stored])
    if kinds.is_list(stored):
        return pa.list_(nullable_type(stored.value_type))
    if kinds.is_map(stored):
        return pa.map_(nullable_type(stored.key_type), nullable_type(stored.item_type))
    return stored


def nullable_schema(stored: pa.Schema) -> pa.Schema:
    """Return the schema with columns and fields that may be null."""
    return pa.schema([pa.field(one.name, nullable_type(one.type)) for one in stored])


def converted(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    """Return values as those of another type, which `type_differences` has nothing against."""
    return evolve(array, wanted)


def type_differences(given: pa.DataType, stored: pa.DataType, path: str) -> Iterator[str]:
    """Yield why values of `given` are not values of the stored type: one sentence per column or field."""
    kinds = pa.types
    if kinds.is_struct(given) and kinds.is_struct(stored):
        yield from _field_differences(given, stored, path)
    elif kinds.is_list(given) and kinds.is_list(stored):
        yield from type_differences(given.value_type, stored.value_type, f"{path}[]")
    elif kinds.is_map(given) and kinds.is_map(stored):
        yield from type_differences(given.key_type, stored.key_type, f"{path}.key")
        yield from type_differences(given.item_type, stored.item_type, f"{path}.value")
    elif not _is_same_leaf(given, stored):
        yield f"'{path}' is {given} and was stored as {stored}: cast it"


def _field_differences(given: pa.DataType, stored: pa.DataType, path: str) -> Iterator[str]:
    names = [one.name for one in stored]
    for one in given:
        if one.name not in names:
            yield f"'{path}.{one.name}' was not stored"
    for one in stored:
        index = given.get_field_index(one.name)
        if index < 0:
            yield f"'{path}.{one.name}' is missing"
        else:
            yield from type_differences(given.field(index).type, one.type, f"{path}.{one.name}")


def _is_same_leaf(given: pa.DataType, stored: pa.DataType) -> bool:
    kinds = pa.types
    if given == stored or is_widening(given, stored):
        return True
    if kinds.is_large_string(given) and kinds.is_string(stored):
        return True
    if kinds.is_large_binary(given) and kinds.is_binary(stored):
        return True
    # One instant, shown in another time zone.
    is_instant = kinds.is_timestamp(given) and kinds.is_timestamp(stored)
    return is_instant and given.unit == stored.unit and bool(given.tz) == bool(stored.tz)
