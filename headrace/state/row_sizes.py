"""How many bytes each row of a table takes in Arrow's layout, without what validity takes."""

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Sizes = npt.NDArray[np.int64]
_OFFSET_BYTES = 4


def row_sizes(table: pa.Table) -> Sizes:
    """Return the bytes of each row, shape (num_rows,): columns together, offsets of variable lengths included."""
    sizes = np.zeros(table.num_rows, dtype=np.int64)
    for column in table.columns:
        sizes += _sizes(column.combine_chunks())
    return sizes


def _sizes(array: pa.Array) -> Sizes:
    kind, count = array.type, len(array)
    if pa.types.is_struct(kind):
        total = np.zeros(count, dtype=np.int64)
        for field in array.flatten():
            total += _sizes(field)
        return total
    if pa.types.is_list(kind) or pa.types.is_map(kind):
        return _list_sizes(array)
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return np.diff(_offsets(array)) + _OFFSET_BYTES
    # Numbers, booleans, dates: all rows alike.
    bits = 0 if pa.types.is_null(kind) else kind.bit_width
    return np.full(count, -(-bits // 8), dtype=np.int64)


def _list_sizes(array: pa.Array) -> Sizes:
    offsets = np.asarray(array.offsets.to_numpy(), dtype=np.int64)
    if pa.types.is_map(array.type):
        elements = _sizes(array.keys) + _sizes(array.items)
    else:
        elements = _sizes(array.values)
    before = np.concatenate([[0], np.cumsum(elements)])
    return before[offsets[1:]] - before[offsets[:-1]] + _OFFSET_BYTES


def _offsets(array: pa.Array) -> Sizes:
    buffer = array.buffers()[1]
    if buffer is None:
        return np.zeros(len(array) + 1, dtype=np.int64)
    offsets = np.frombuffer(buffer, dtype=np.int32)
    return offsets[array.offset : array.offset + len(array) + 1].astype(np.int64)
