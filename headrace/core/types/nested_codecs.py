"""Codecs of types with inner values: lists, maps, rows, tuples. A column's inner values are converted at once."""

from collections.abc import Mapping, Sequence
from dataclasses import is_dataclass
from itertools import chain, pairwise
from operator import attrgetter
from typing import Any, Final, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.core.types.rows import Row, rows_of
from headrace.core.types.scalar_codecs import ColumnCodec, ValueMismatch, mismatch

_NONE_TYPE: Final = type(None)
_FIELDS_OF: Final = attrgetter("_fields")
_VALUES_OF: Final = attrgetter("_values")
_KIND_OF: Final = attrgetter("_kind")


class ListCodec:
    """Codec of lists, and of arrays of anything but bytes."""

    def __init__(self, element: ColumnCodec, *, allows_none: bool) -> None:
        self._element = element
        self._allows_none = allows_none
        self.arrow_type = pa.list_(element.arrow_type)

    def encode(self, values: Sequence[Any]) -> pa.Array:
        classes = set(map(type, values))
        if not classes <= {list, tuple, _NONE_TYPE}:
            values = [None if value is None else _as_list(value) for value in values]
        present, offsets, mask = _layout(values)
        elements = self._element.encode(list(chain.from_iterable(present)))
        if not self._allows_none and elements.null_count:
            raise ValueMismatch("expected no None in an array of a primitive type")
        return pa.ListArray.from_arrays(offsets, elements, mask=mask)

    def decode(self, array: pa.Array) -> list[Any]:
        offsets: list[int] = array.offsets.to_pylist()
        first, last = offsets[0], offsets[-1]
        elements = self._element.decode(array.values.slice(first, last - first))
        lists = [elements[start - first : end - first] for start, end in pairwise(offsets)]
        return _with_nulls(lists, array)


class MapCodec:
    """Codec of dicts."""

    def __init__(self, key: ColumnCodec, value: ColumnCodec) -> None:
        self._key = key
        self._value = value
        self.arrow_type = pa.map_(key.arrow_type, value.arrow_type)

    def encode(self, values: Sequence[Any]) -> pa.Array:
        for value in values:
            if value is not None and not isinstance(value, Mapping):
                raise mismatch("a dict", value)
        present, offsets, mask = _layout(values)
        keys = self._key.encode(list(chain.from_iterable(present)))
        if keys.null_count:
            raise ValueMismatch("expected no None among the keys of a map")
        items = self._value.encode(list(chain.from_iterable(one.values() for one in present)))
        return pa.MapArray.from_arrays(offsets, keys, items, mask=mask)

    def decode(self, array: pa.Array) -> list[Any]:
        offsets: list[int] = array.offsets.to_pylist()
        first, last = offsets[0], offsets[-1]
        keys = self._key.decode(array.keys.slice(first, last - first))
        items = self._value.decode(array.items.slice(first, last - first))
        maps = [
            dict(
                zip(
                    keys[start - first : end - first],
                    items[start - first : end - first],
                    strict=True,
                )
            )
            for start, end in pairwise(offsets)
        ]
        return _with_nulls(maps, array)


class FieldsCodec:
    """Codec of rows and tuples: inside others as a struct, at the top level as one array per field.

    A Row with names, a dict or a dataclass is read by name, anything else by position.
    """

    def __init__(
        self, fields: Sequence[pa.Field], codecs: Sequence[ColumnCodec], *, gives_rows: bool
    ) -> None:
        self._fields = tuple(fields)
        self._names = tuple(field.name for field in fields)
        self._codecs = tuple(codecs)
        self._gives_rows = gives_rows
        self.arrow_type = pa.struct(list(fields))

    def encode(self, values: Sequence[Any]) -> pa.Array:
        mask: pa.Array | None = None
        if _NONE_TYPE in set(map(type, values)):
            mask = pa.array([value is None for value in values])
            no_fields = (None,) * len(self._names)
            values = [no_fields if value is None else value for value in values]
        return pa.StructArray.from_arrays(
            self.encode_fields(values), fields=list(self._fields), mask=mask
        )

    def decode(self, array: pa.Array) -> list[Any]:
        rows = self.decode_fields([array.field(index) for index in range(len(self._names))])
        return _with_nulls(rows, array)

    def encode_fields(self, values: Sequence[Any]) -> list[pa.Array]:
        """Return one array per field; no value may be None."""
        columns = (
            zip(*self._field_values(values), strict=True) if values else [()] * len(self._names)
        )
        arrays: list[pa.Array] = []
        for name, codec, column in zip(self._names, self._codecs, columns, strict=True):
            try:
                arrays.append(codec.encode(column))
            except ValueMismatch as error:
                raise ValueMismatch(f"field '{name}': {error}") from None
        return arrays

    def decode_fields(self, arrays: Sequence[pa.Array]) -> list[Any]:
        """Return a Row or tuple per row; `arrays` are of the fields' types."""
        columns = [codec.decode(array) for codec, array in zip(self._codecs, arrays, strict=True)]
        values = zip(*columns, strict=True)
        return rows_of(self._names, values) if self._gives_rows else list(values)

    @property
    def field_types(self) -> list[pa.DataType]:
        """Return the Arrow types of the fields, in order."""
        return [codec.arrow_type for codec in self._codecs]

    def _field_values(self, values: Sequence[Any]) -> Sequence[Sequence[Any]]:
        """Return for each value a sequence with one item per field."""
        classes = set(map(type, values))
        if classes == {Row}:
            # Every row a Row of the very names, as upstream operators make them, or without names.
            if not self._gives_rows or {None, self._names}.issuperset(map(_FIELDS_OF, values)):
                values = list(map(_VALUES_OF, values))
            else:
                values = [row.get_fields_by_names(self._names) for row in values]
        elif not classes <= {tuple, list}:
            values = [self._fields_of_one(value) for value in values]
        field_count = len(self._names)
        if {field_count} != set(map(len, values)):
            wrong = next(value for value in values if len(value) != field_count)
            raise ValueMismatch(f"expected {field_count} fields, got {len(wrong)}")
        return values

    def _fields_of_one(self, value: Any) -> Sequence[Any]:
        if isinstance(value, Row):
            if not self._gives_rows:
                return list(value)
            try:
                return value.get_fields_by_names(self._names)
            except ValueError as error:
                raise ValueMismatch(str(error)) from None
        if isinstance(value, tuple | list):
            return cast(Sequence[Any], value)
        if self._gives_rows and isinstance(value, Mapping):
            return self._by_name(cast(Mapping[str, Any], value))
        if self._gives_rows and is_dataclass(value):
            return self._by_name(vars(value))
        raise mismatch("a Row, tuple, list or dict" if self._gives_rows else "a tuple", value)

    def _by_name(self, value: Mapping[str, Any]) -> Sequence[Any]:
        missing = [name for name in self._names if name not in value]
        if missing:
            raise ValueMismatch(f"field '{missing[0]}' is missing")
        return [value[name] for name in self._names]


class ObjectCodec:
    """Codec of objects of one class, stored as a struct of their fields."""

    def __init__(self, object_class: type[Any], fields: FieldsCodec) -> None:
        self._object_class = object_class
        self._fields = fields
        self._names = [field.name for field in fields.arrow_type]
        self.arrow_type = fields.arrow_type

    def encode(self, values: Sequence[Any]) -> pa.Array:
        return self._fields.encode(
            [None if one is None else self._values_of(one) for one in values]
        )

    def decode(self, array: pa.Array) -> list[Any]:
        make = self._object_class
        return [None if one is None else make(*one) for one in self._fields.decode(array)]

    def _values_of(self, value: Any) -> list[Any]:
        if not isinstance(value, self._object_class):
            raise mismatch(f"a {self._object_class.__name__}", value)
        return [getattr(value, name) for name in self._names]


def row_kinds(values: Sequence[Any]) -> pa.Array | None:
    """Return the kinds of rows as int8, shape (num_rows,), or None where all are plain inserts."""
    classes = set(map(type, values))
    if Row not in classes:
        return None
    if classes == {Row}:
        kinds = list(map(_KIND_OF, values))
    else:
        kinds = [_KIND_OF(value) if isinstance(value, Row) else 0 for value in values]
    return pa.array(kinds, type=pa.int8()) if any(kinds) else None


def set_row_kinds(rows: Sequence[Row], kinds: pa.Array) -> None:
    """Set the kinds that `row_kinds` returned on newly made rows."""
    for row, kind in zip(rows, kinds.to_pylist(), strict=True):
        row._kind = kind  # pyright: ignore[reportPrivateUsage]


def _as_list(value: Any) -> Sequence[Any]:
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, str | bytes | Mapping | Row) or not hasattr(value, "__iter__"):
        raise mismatch("a list", value)
    return list(value)


def _layout(values: Sequence[Any]) -> tuple[Sequence[Any], pa.Array, pa.Array | None]:
    """Return the values that are not None, the offsets of all, and the mask of None (None: no value is None)."""
    present = [value for value in values if value is not None]
    mask: pa.Array | None = None
    if len(present) != len(values):
        mask = pa.array([value is None for value in values])
    offsets: npt.NDArray[np.int32] = np.zeros(len(values) + 1, dtype=np.int32)
    np.cumsum([0 if value is None else len(value) for value in values], out=offsets[1:])
    return present, pa.array(offsets), mask


def _with_nulls(values: list[Any], array: pa.Array) -> list[Any]:
    """Return `values` with None where `array` is null."""
    if array.null_count:
        for index in np.flatnonzero(array.is_null().to_numpy(zero_copy_only=False)).tolist():
            values[index] = None
    return values
