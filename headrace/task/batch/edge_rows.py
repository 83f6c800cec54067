"""Formats for the rows of an edge: PackedRows between stages, and EdgeRows, which Spark itself reads.

EdgeRows are one column of Spark structs. A struct has the columns of the stream's type, called `c0`, `c1`, … because
Spark ignores the case of names; on a keyed stream it also has the key. A stream with a column for which Spark has no
equal type is sent as pickled records.
"""

from typing import Final

import numpy as np
import pyarrow as pa

from headrace.core.record_batch import (
    KEY_COLUMN,
    BatchType,
    RecordBatch,
    key_values_to_array,
)
from headrace.core.types.arrow_mapping import ROW_KIND_COLUMN
from headrace.core.types.arrow_types import arrow_type_of, data_schema
from headrace.core.types.type_info import PickledBytesTypeInfo, RowTypeInfo, TypeInformation

_KEY: Final = "key"
_ROW_KIND: Final = "kind"
_REPEATED_KEY: Final = b"headrace.repeated-key"
"""Schema metadata key of a packet whose key column is left out.

It gives the equal column's index and the key's place.
"""
_ALIGNMENT: Final = 8
"""Alignment of streams in bytes: streams are padded to it, so that usually all streams in a column are aligned."""
_PICKLED: Final = PickledBytesTypeInfo()


def _is_storable(arrow_type: pa.DataType) -> bool:
    """Return whether Spark returns values of the type unchanged."""
    if pa.types.is_list(arrow_type):
        return _is_storable(arrow_type.value_type)
    if pa.types.is_struct(arrow_type):
        fields = [arrow_type.field(index) for index in range(arrow_type.num_fields)]
        return all(field.nullable and _is_storable(field.type) for field in fields)
    return (
        pa.types.is_signed_integer(arrow_type)
        or arrow_type in (pa.float32(), pa.float64(), pa.bool_(), pa.string(), pa.binary())
        or pa.types.is_date32(arrow_type)
        or pa.types.is_decimal128(arrow_type)
        # Timestamps with a time zone come back in Spark's zone, which names the same instants differently.
        or (pa.types.is_timestamp(arrow_type) and arrow_type.unit == "us")
    )


def _stored(type_info: TypeInformation) -> TypeInformation:
    return type_info if _is_storable(arrow_type_of(type_info)) else _PICKLED


class EdgeRows:
    """Encodes batches of one type as Spark structs."""

    def __init__(self, batch_type: BatchType) -> None:
        self._batch_type: Final = batch_type
        value_type, key_type = batch_type.value_type, batch_type.key_type
        self._columns: Final = data_schema(value_type)
        is_storable = all(_is_storable(field.type) for field in self._columns)
        self.is_pickled: Final = not is_storable
        """True if records are pickled because Spark has no equal columns."""
        stored = self._columns if is_storable else data_schema(_PICKLED)
        fields = [pa.field(f"c{index}", field.type) for index, field in enumerate(stored)]
        self._data_count: Final = len(fields)
        self._has_row_kinds: Final = is_storable and isinstance(value_type, RowTypeInfo)
        if self._has_row_kinds:
            fields.append(pa.field(_ROW_KIND, pa.int8()))
        self._key_type: Final = None if key_type is None else _stored(key_type)
        if self._key_type is not None:
            fields.append(pa.field(_KEY, arrow_type_of(self._key_type)))
        self.struct_type: Final = pa.struct(fields)

    def encode(self, batch: RecordBatch) -> pa.StructArray:
        """Return a struct for each row. RecordTypeError if a record does not match its type."""
        if self.is_pickled:
            columns = RecordBatch.of_rows(BatchType(_PICKLED), batch.rows()).columns()
        else:
            columns = batch.columns()
        arrays: list[pa.Array] = list(columns.columns[: self._data_count])
        if self._has_row_kinds:
            index = columns.schema.get_field_index(ROW_KIND_COLUMN)
            kinds = pa.nulls(len(columns), pa.int8()) if index < 0 else columns.column(index)
            arrays.append(kinds)
        if self._key_type is not None:
            is_as_declared = self._key_type == self._batch_type.key_type
            arrays.append(
                batch.keys_array()
                if is_as_declared
                else key_values_to_array(batch.keys(), self._key_type)
            )
        return pa.StructArray.from_arrays(arrays, fields=list(self.struct_type))


class PackedRows:
    """Encoding of rows between two stages: an Arrow stream of many rows is one value for Spark.

    Spark then neither converts nor sorts single rows, which would cost more than most functions.
    """

    struct_type: Final = pa.binary()


def packed(rows: pa.RecordBatch) -> pa.Buffer:
    """Return rows as an Arrow stream with their schema. A key that equals one of their columns is not written twice."""
    rows = without_repeated_key(rows)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as stream:
        stream.write_batch(rows)
    return sink.getvalue()


def packets(content: pa.Buffer, count: int) -> pa.Array:
    """Return a column that repeats one packet `count` times, shape (count,); without a copy for 1."""
    if count > 1:
        return pa.array([content.to_pybytes()] * count, PackedRows.struct_type)
    offsets = pa.py_buffer(np.array([0, content.size], np.int32))
    return pa.Array.from_buffers(PackedRows.struct_type, 1, [None, offsets, content])


def unpacked(column: pa.Array, index: int) -> pa.RecordBatch:
    """Return the rows of one packet of a column that `packets` made; they keep its memory alive."""
    _, offsets, contents = column.buffers()
    # Spark uses large offsets with `spark.sql.execution.arrow.useLargeVarTypes`.
    width = np.int64 if pa.types.is_large_binary(column.type) else np.int32
    begin, end = np.frombuffer(offsets, width)[column.offset + index :][:2].tolist()
    content = contents.slice(begin, end - begin)
    if content.address % _ALIGNMENT:
        content = pa.py_buffer(content.to_pybytes())
    with pa.ipc.open_stream(content) as stream:
        return with_repeated_key(stream.read_next_batch())


def without_repeated_key(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return `rows` without their key if it equals one of their columns; the schema's metadata records this."""
    place = rows.schema.get_field_index(KEY_COLUMN)
    if place < 0:
        return rows
    key = rows.column(place)
    # Zeros of both signs are equal, but not identical.
    if pa.types.is_floating(key.type) or pa.types.is_nested(key.type):
        return rows
    for index, column in enumerate(rows.columns):
        if index != place and column.type == key.type and column.equals(key):
            told = {_REPEATED_KEY: f"{index},{place}".encode()}
            return without_column(rows, place).replace_schema_metadata(told)
    return rows


def with_repeated_key(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return `rows` with the key that `without_repeated_key` has left out. Without a copy."""
    told = (rows.schema.metadata or {}).get(_REPEATED_KEY)
    if told is None:
        return rows
    index, place = map(int, told.split(b","))
    return with_key_at(rows, index, place)


def without_column(rows: pa.RecordBatch, place: int) -> pa.RecordBatch:
    """Return `rows` without the column at `place`. Without a copy."""
    return rows.select([one for one in range(rows.num_columns) if one != place])


def with_key_at(rows: pa.RecordBatch, index: int, place: int) -> pa.RecordBatch:
    """Return `rows` with the key inserted at `place`: the column that then has `index`, without a copy."""
    arrays, fields = list(rows.columns), list(rows.schema)
    key = arrays[index if index < place else index - 1]
    arrays.insert(place, key)
    fields.insert(place, pa.field(KEY_COLUMN, key.type))
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def int32_column(column: pa.Array) -> "np.ndarray[tuple[int], np.dtype[np.int32]]":
    """Return a Spark column without nulls as an array, shape (num_rows,)."""
    return column.to_numpy(zero_copy_only=False).astype(np.int32, copy=False)
