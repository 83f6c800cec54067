"""A value as it is stored: its last access (8 bytes, epoch ms) and a pickle."""

import pickle
import struct
from typing import Any, Final

from headrace.core.types.pickles import pickle_value

_STAMP: Final = struct.Struct(">q")
NO_STAMP: Final = -1
"""Last access of what was written without a time to live."""


def stored_form(value: Any, stamp_ms: int) -> bytes:
    """Return what is stored for a value."""
    return _STAMP.pack(stamp_ms) + pickle_value(value)


def stored_value(form: bytes) -> Any:
    """Return the value of what is stored."""
    return pickle.loads(memoryview(form)[_STAMP.size :])


def stored_stamp(form: bytes) -> int:
    """Return the last access of what is stored, or NO_STAMP."""
    return _STAMP.unpack_from(form)[0]
