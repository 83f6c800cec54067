"""RecordBatch: rows of one type as they pass through operators, in columns or as Python objects.

Vectorised operators ask for `columns`, per-record ones for `rows`; the other form is made when it is first asked for
and kept. The runtime owns the columns whose names begin with `$`: event timestamp, key and key hash. A batch is never
changed after it was passed on: operators make new ones. `stream_bytes` writes batches as an Arrow IPC stream, the form
in which rows travel in messages and committables.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.core.elements import MIN_TIMESTAMP
from headrace.core.types.arrow_mapping import (
    ROW_KIND_COLUMN,
    array_to_values,
    columns_to_rows,
    rows_to_columns,
)
from headrace.core.types.arrow_types import data_schema
from headrace.core.types.type_info import TypeInformation

TIMESTAMP_COLUMN: Final = "$timestamp"
KEY_COLUMN: Final = "$key"
KEY_HASH_COLUMN: Final = "$key_hash"

Timestamps = npt.NDArray[np.int64]
KeyHashes = npt.NDArray[np.int32]


@dataclass(frozen=True)
class BatchType:
    """Types on which the two ends of an edge agree: the records' type, and on a keyed stream the key's type."""

    value_type: TypeInformation
    key_type: TypeInformation | None = None


class RecordBatch:
    """`num_rows` records with `timestamps` and keys, if the stream has them.

    `timestamps`: epoch ms, shape (num_rows,), or None if the stream has no event time. `key_hashes`: int32, shape
    (num_rows,), and `keys()`: on a keyed stream, else None.
    """

    __slots__ = (
        "_columns",
        "_keys",
        "_keys_array",
        "_rows",
        "batch_type",
        "key_hashes",
        "num_rows",
        "timestamps",
    )

    def __init__(
        self,
        batch_type: BatchType,
        num_rows: int,
        *,
        columns: pa.RecordBatch | None = None,
        rows: Sequence[Any] | None = None,
        timestamps: Timestamps | None = None,
        keys: Sequence[Any] | None = None,
        keys_array: pa.Array | None = None,
        key_hashes: KeyHashes | None = None,
    ) -> None:
        self.batch_type = batch_type
        self.num_rows = num_rows
        self._columns = columns
        self._rows = rows
        self.timestamps = timestamps
        self._keys = keys
        self._keys_array = keys_array
        self.key_hashes = key_hashes

    @classmethod
    def of_rows(
        cls, batch_type: BatchType, rows: Sequence[Any], timestamps: Timestamps | None = None
    ) -> "RecordBatch":
        """Make a batch of Python records."""
        return cls(batch_type, len(rows), rows=rows, timestamps=timestamps)

    @classmethod
    def of_columns(
        cls, batch_type: BatchType, columns: pa.RecordBatch, timestamps: Timestamps | None = None
    ) -> "RecordBatch":
        """Make a batch of data columns (no `$` columns)."""
        return cls(batch_type, columns.num_rows, columns=columns, timestamps=timestamps)

    def rows(self) -> Sequence[Any]:
        """Return the records as Python values of the stream's type, length `num_rows`. Do not change the list."""
        if self._rows is None:
            assert self._columns is not None
            self._rows = columns_to_rows(self._columns, self.batch_type.value_type)
        return self._rows

    def columns(self) -> pa.RecordBatch:
        """Return the data columns; RecordTypeError if a record does not fit the declared type."""
        if self._columns is None:
            assert self._rows is not None
            self._columns = _to_data_columns(self._rows, self.batch_type.value_type)
        return self._columns

    @property
    def is_columnar(self) -> bool:
        """Return whether the columns exist already."""
        return self._columns is not None

    @property
    def has_keys_array(self) -> bool:
        """Return whether the keys exist as an Arrow array already; only on a keyed batch."""
        return self._keys_array is not None

    @property
    def is_keyed(self) -> bool:
        """Return whether rows carry keys."""
        return self.key_hashes is not None

    def keys(self) -> Sequence[Any]:
        """Return the key of each row as Python values; only on a keyed batch."""
        if self._keys is None:
            assert self._keys_array is not None and self.batch_type.key_type is not None
            self._keys = array_to_values(self._keys_array, self.batch_type.key_type)
        return self._keys

    def keys_array(self) -> pa.Array:
        """Return the keys as one Arrow array (binary if the key's type is undeclared); only on a keyed batch."""
        if self._keys_array is None:
            assert self._keys is not None and self.batch_type.key_type is not None
            self._keys_array = key_values_to_array(self._keys, self.batch_type.key_type)
        return self._keys_array

    def with_keys(
        self,
        key_type: TypeInformation,
        key_hashes: KeyHashes,
        *,
        keys: Sequence[Any] | None = None,
        keys_array: pa.Array | None = None,
    ) -> "RecordBatch":
        """Return the same records with keys, given as values or as an array."""
        return RecordBatch(
            BatchType(self.batch_type.value_type, key_type),
            self.num_rows,
            columns=self._columns,
            rows=self._rows,
            timestamps=self.timestamps,
            keys=keys,
            keys_array=keys_array,
            key_hashes=key_hashes,
        )

    def without_keys(self) -> "RecordBatch":
        """Return the same records without keys."""
        return RecordBatch(
            BatchType(self.batch_type.value_type),
            self.num_rows,
            columns=self._columns,
            rows=self._rows,
            timestamps=self.timestamps,
        )

    def with_rows(self, rows: Sequence[Any]) -> "RecordBatch":
        """Return a batch of `rows`, which are equally many, with the same timestamps and keys."""
        return self._of_records(None, rows)

    def without_rows(self) -> "RecordBatch":
        """Return the same records only in columns, which must exist; rows are made again when needed."""
        assert self._columns is not None
        return self._of_records(self._columns, None)

    def _of_records(
        self, columns: pa.RecordBatch | None, rows: Sequence[Any] | None
    ) -> "RecordBatch":
        return RecordBatch(
            self.batch_type,
            self.num_rows,
            columns=columns,
            rows=rows,
            timestamps=self.timestamps,
            keys=self._keys,
            keys_array=self._keys_array,
            key_hashes=self.key_hashes,
        )

    def with_timestamps(self, timestamps: Timestamps | None) -> "RecordBatch":
        """Return the same records and keys with other timestamps."""
        return RecordBatch(
            self.batch_type,
            self.num_rows,
            columns=self._columns,
            rows=self._rows,
            timestamps=timestamps,
            keys=self._keys,
            keys_array=self._keys_array,
            key_hashes=self.key_hashes,
        )

    def slice(self, offset: int, length: int | None = None) -> "RecordBatch":
        """Return rows [offset, offset + length) without copying columns."""
        end = self.num_rows if length is None else min(self.num_rows, offset + length)
        if offset == 0 and end == self.num_rows:
            return self
        count = end - offset
        return RecordBatch(
            self.batch_type,
            count,
            columns=None if self._columns is None else self._columns.slice(offset, count),
            rows=None if self._rows is None else self._rows[offset:end],
            timestamps=None if self.timestamps is None else self.timestamps[offset:end],
            keys=None if self._keys is None else self._keys[offset:end],
            keys_array=None if self._keys_array is None else self._keys_array.slice(offset, count),
            key_hashes=None if self.key_hashes is None else self.key_hashes[offset:end],
        )

    def take(self, indices: npt.NDArray[np.integer[Any]]) -> "RecordBatch":
        """Return the rows at `indices` (shape (k,)), in that order.

        Of rows and columns that both exist only the columns are taken: they are cheaper, and rows can be made again.
        """
        arrow_indices = pa.array(indices)
        columns = None if self._columns is None else self._columns.take(arrow_indices)
        rows: Sequence[Any] | None = None
        if columns is None and self._rows is not None:
            rows = [self._rows[i] for i in indices.tolist()]
        keys_array = None if self._keys_array is None else self._keys_array.take(arrow_indices)
        keys: Sequence[Any] | None = None
        if keys_array is None and self._keys is not None:
            keys = [self._keys[i] for i in indices.tolist()]
        return RecordBatch(
            self.batch_type,
            len(indices),
            columns=columns,
            rows=rows,
            timestamps=None if self.timestamps is None else self.timestamps[indices],
            keys=keys,
            keys_array=keys_array,
            key_hashes=None if self.key_hashes is None else self.key_hashes[indices],
        )

    def filter(self, mask: npt.NDArray[np.bool_]) -> "RecordBatch":
        """Return the rows for which `mask` (bool, shape (num_rows,)) holds."""
        if mask.all():
            return self
        return self.take(np.flatnonzero(mask))

    def to_arrow(self) -> pa.RecordBatch:
        """Return the wire form: data columns, then the `$` columns that this batch has."""
        arrow = self.columns()
        if self.timestamps is not None:
            arrow = arrow.append_column(TIMESTAMP_COLUMN, pa.array(self.timestamps))
        if self.key_hashes is not None:
            arrow = arrow.append_column(KEY_COLUMN, self.keys_array())
            arrow = arrow.append_column(KEY_HASH_COLUMN, pa.array(self.key_hashes))
        return arrow

    @classmethod
    def from_arrow(cls, batch_type: BatchType, arrow: pa.RecordBatch) -> "RecordBatch":
        """Rebuild a batch from its wire form. Inverse of `to_arrow`."""
        names = arrow.schema.names
        timestamps: Timestamps | None = None
        keys_array: pa.Array | None = None
        key_hashes: KeyHashes | None = None
        data_count = len(names)
        for index in range(len(names) - 1, -1, -1):
            name = names[index]
            if name == TIMESTAMP_COLUMN:
                timestamps = arrow.column(index).to_numpy(zero_copy_only=True)
            elif name == KEY_COLUMN:
                keys_array = arrow.column(index)
            elif name == KEY_HASH_COLUMN:
                key_hashes = arrow.column(index).to_numpy(zero_copy_only=True)
            else:
                break
            data_count = index
        if data_count != len(names):
            arrow = arrow.select(list(range(data_count)))
        return cls(
            batch_type,
            arrow.num_rows,
            columns=arrow,
            timestamps=timestamps,
            keys_array=keys_array,
            key_hashes=key_hashes,
        )

    def __repr__(self) -> str:
        form = "columns" if self._columns is not None else "rows"
        return f"RecordBatch({self.num_rows} rows as {form}, {self.batch_type.value_type})"


def key_values_to_array(keys: Sequence[Any], key_type: TypeInformation) -> pa.Array:
    """Return keys as one Arrow array; composite key types become a struct array."""
    arrays = rows_to_columns(list(keys), key_type)
    schema = data_schema(key_type)
    if len(arrays) == 1 and schema.names == ["value"]:
        return arrays[0]
    return pa.StructArray.from_arrays(arrays, names=schema.names[: len(arrays)])


def _to_data_columns(rows: Sequence[Any], value_type: TypeInformation) -> pa.RecordBatch:
    arrays = rows_to_columns(list(rows), value_type)
    schema = data_schema(value_type)
    if len(arrays) == len(schema):
        return pa.RecordBatch.from_arrays(arrays, schema=schema)
    # One more column than the type has: the kinds of rows that are not plain inserts.
    return pa.RecordBatch.from_arrays(arrays, names=[*schema.names, ROW_KIND_COLUMN])


def _timestamps_or_none(batch: RecordBatch) -> Timestamps:
    if batch.timestamps is None:
        return np.full(batch.num_rows, MIN_TIMESTAMP, dtype=np.int64)
    return batch.timestamps


def columns_of_one_schema(columns: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """Add a column of row kinds, all plain inserts, to batches that lack it, if any batch has one."""
    if not any(ROW_KIND_COLUMN in one.schema.names for one in columns):
        return columns
    return [
        one
        if ROW_KIND_COLUMN in one.schema.names
        else one.append_column(ROW_KIND_COLUMN, pa.array(np.zeros(one.num_rows, dtype=np.int8)))
        for one in columns
    ]


def concat_batches(batches: Sequence[RecordBatch]) -> RecordBatch:
    """Return the rows of `batches` (at least one; all of one type) in order, as one batch.

    The result has rows if every batch has them, otherwise columns.
    """
    first = batches[0]
    if len(batches) == 1:
        return first
    num_rows = sum(batch.num_rows for batch in batches)
    timestamps = None
    if any(batch.timestamps is not None for batch in batches):
        # What timers emit on a stream without event time has times, what records give has none.
        timestamps = np.concatenate([_timestamps_or_none(batch) for batch in batches])
    key_hashes = None
    keys: Sequence[Any] | None = None
    keys_array: pa.Array | None = None
    if first.key_hashes is not None:
        key_hashes = np.concatenate(
            [batch.key_hashes for batch in batches if batch.key_hashes is not None]
        )
        if not all(batch.has_keys_array for batch in batches):
            keys = [key for batch in batches for key in batch.keys()]
        else:
            keys_array = pa.concat_arrays([batch.keys_array() for batch in batches])
    columns: pa.RecordBatch | None = None
    rows: Sequence[Any] | None = None
    if not any(batch.is_columnar for batch in batches):
        rows = [row for batch in batches for row in batch.rows()]
    else:
        columns = pa.concat_batches(columns_of_one_schema([batch.columns() for batch in batches]))
    return RecordBatch(
        first.batch_type,
        num_rows,
        columns=columns,
        rows=rows,
        timestamps=timestamps,
        keys=keys,
        keys_array=keys_array,
        key_hashes=key_hashes,
    )


def stream_bytes(schema: pa.Schema, rows: Iterable[pa.RecordBatch | pa.Table]) -> bytes:
    """Return an Arrow IPC stream of these rows, one batch after the other; without rows it has only the schema."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as stream:
        for each in rows:
            stream.write(each)
    return sink.getvalue().to_pybytes()
