"""How keys, namespaces and values of keyed state stand in columns, and back.

Declared types become typed columns, undeclared ones binary columns with a pickle per row. Time windows become a struct
of start and end, so that whoever reads a snapshot needs no code of ours.
"""

import enum
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
from headrace.functions.windows import TimeWindow

KEY_GROUP: Final = "key_group"
KEY: Final = "key"
NAMESPACE: Final = "namespace"
MAP_KEY: Final = "map_key"
LIST_POS: Final = "list_pos"
VALUE: Final = "value"
VALUE_ROW_KIND: Final = "value_row_kind"
LAST_ACCESS: Final = "last_access"

KeyGroups = npt.NDArray[np.int32]

_OPAQUE_TYPE: Final = PickledBytesTypeInfo()
_TIME_WINDOW: Final = pa.struct(
    [pa.field("start", pa.int64(), nullable=False), pa.field("end", pa.int64(), nullable=False)]
)


def is_opaque(type_info: TypeInformation) -> bool:
    """Whether values of the type are stored as pickles."""
    return isinstance(type_info, PickledBytesTypeInfo)


def key_groups(keys: Sequence[Any], key_type: TypeInformation, max_parallelism: int) -> KeyGroups:
    """Return the key group of each key, shape (len(keys),): by the hash that the exchange uses."""
    if is_opaque(key_type):
        hashes = hash_keys(keys)
    else:
        hashes = hash_array(key_values_to_array(keys, key_type))
    return key_groups_of(hashes, max_parallelism)


def encode(values: Sequence[Any], type_info: TypeInformation) -> pa.Array:
    """Return values as one column. RecordTypeError where one does not fit its type."""
    return values_to_array(values, type_info)


def decode(column: pa.Array, type_info: TypeInformation) -> list[Any]:
    """Return the values of a column that `encode` made."""
    return array_to_values(column, type_info)


def encode_row_kinds(values: Sequence[Any], type_info: TypeInformation) -> pa.Array | None:
    """Return the kinds of rows, where some are no plain inserts; other values have none."""
    return row_kinds(values) if isinstance(type_info, RowTypeInfo) else None


def decode_row_kinds(values: Sequence[Any], kinds: pa.Array) -> None:
    """Put kinds back on the rows."""
    present = [index for index, value in enumerate(values) if value is not None]
    set_row_kinds([values[index] for index in present], kinds.take(pa.array(present, pa.int64())))


class NamespaceKind(enum.Enum):
    """How the namespaces of a chunk are stored."""

    VOID = "void"
    """There are none: no column."""
    TIME_WINDOW = "time_window"
    OPAQUE = "opaque"


def encode_namespaces(namespaces: Sequence[Any]) -> tuple[pa.Array, NamespaceKind]:
    """Return namespaces as a column: structs where all are time windows, else pickles."""
    if all(type(namespace) is TimeWindow for namespace in namespaces):
        starts = pa.array([window.start for window in namespaces], type=pa.int64())
        ends = pa.array([window.end for window in namespaces], type=pa.int64())
        array = pa.StructArray.from_arrays([starts, ends], fields=list(_TIME_WINDOW))
        return array, NamespaceKind.TIME_WINDOW
    return encode(namespaces, _OPAQUE_TYPE), NamespaceKind.OPAQUE


def decode_namespaces(column: pa.Array) -> list[Any]:
    """Return the namespaces of a column that `encode_namespaces` made."""
    if pa.types.is_struct(column.type):
        starts, ends = column.field(0).to_pylist(), column.field(1).to_pylist()
        return list(map(TimeWindow, starts, ends))
    return decode(column, _OPAQUE_TYPE)
