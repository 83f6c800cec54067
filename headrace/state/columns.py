"""Converts keys, namespaces and values of keyed state to Arrow columns and back.

Declared types become typed columns, undeclared ones binary columns with a pickle per row. Time windows become a struct
of start and end, and times become numbers, so that a snapshot can be read without Headrace's code.
"""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.core.key_groups import key_groups_of
from headrace.core.key_hash import hash_array, hash_keys
from headrace.core.record_batch import key_values_to_array
from headrace.core.types.arrow_mapping import array_to_values, values_to_array
from headrace.core.types.nested_codecs import row_kinds, set_row_kinds
from headrace.core.types.type_info import PickledBytesTypeInfo, RowTypeInfo, TypeInformation
from headrace.functions.windows import TIME_WINDOW_TYPE, TimeWindow

KEY_GROUP: Final = "key_group"
KEY: Final = "key"
NAMESPACE: Final = "namespace"
MAP_KEY: Final = "map_key"
LIST_POS: Final = "list_pos"
VALUE: Final = "value"
VALUE_ROW_KIND: Final = "value_row_kind"
LAST_ACCESS: Final = "last_access"
EXPIRED: Final = "expired"
"""Column that marks rows past their time to live; it is not stored, but shown to readers that ask for such rows."""

WINDOW_START: Final = "window_start"
TIMER_SERVICE: Final = "service"
TIMER_DOMAIN: Final = "domain"
EVENT_DOMAIN: Final = "event"
PROCESSING_DOMAIN: Final = "processing"
TIMER_DOMAINS: Final = frozenset({EVENT_DOMAIN, PROCESSING_DOMAIN})
TIMER_TIME: Final = "ts"
"""Column with the time at which a timer is due, epoch ms."""

KeyGroups = npt.NDArray[np.int32]

_OPAQUE_TYPE: Final = PickledBytesTypeInfo()


def is_opaque(type_info: TypeInformation) -> bool:
    """Return whether values of the type are stored as pickles."""
    return isinstance(type_info, PickledBytesTypeInfo)


def key_groups(keys: Sequence[Any], key_type: TypeInformation, max_parallelism: int) -> KeyGroups:
    """Return the key group of each key, shape (len(keys),): by the hash that the exchange uses."""
    if is_opaque(key_type):
        hashes = hash_keys(keys)
    else:
        hashes = hash_array(key_values_to_array(keys, key_type))
    return key_groups_of(hashes, max_parallelism)


def encode(values: Sequence[Any], type_info: TypeInformation) -> pa.Array:
    """Return values as one column. RecordTypeError if a value does not fit the type."""
    return values_to_array(values, type_info)


def decode(column: pa.Array, type_info: TypeInformation) -> list[Any]:
    """Return the values of a column that `encode` returned."""
    return array_to_values(column, type_info)


def encode_row_kinds(values: Sequence[Any], type_info: TypeInformation) -> pa.Array | None:
    """Return the kinds of rows as a column, or None if all rows are plain inserts."""
    return row_kinds(values) if isinstance(type_info, RowTypeInfo) else None


def decode_row_kinds(values: Sequence[Any], kinds: pa.Array) -> None:
    """Set the kinds of rows from a column of `encode_row_kinds`."""
    present = [index for index, value in enumerate(values) if value is not None]
    set_row_kinds([values[index] for index in present], kinds.take(pa.array(present, pa.int64())))


def encode_namespaces(namespaces: Sequence[Any]) -> pa.Array:
    """Return namespaces as a column: structs if all are time windows, int64 if all are times, else pickles.

    Without namespaces the column has the type null.
    """
    classes = set(map(type, namespaces))
    if not classes:
        return pa.nulls(0)
    if classes == {TimeWindow}:
        return encode(namespaces, TIME_WINDOW_TYPE)
    if classes == {int}:
        return pa.array(namespaces, type=pa.int64())
    return encode(namespaces, _OPAQUE_TYPE)


def decode_namespaces(column: pa.Array) -> list[Any]:
    """Return the namespaces of a column that `encode_namespaces` returned."""
    if pa.types.is_struct(column.type):
        return decode(column, TIME_WINDOW_TYPE)
    return column.to_pylist() if pa.types.is_int64(column.type) else decode(column, _OPAQUE_TYPE)
