"""A value as it is stored: its last access (8 bytes, epoch ms) and a pickle."""

import struct
from dataclasses import dataclass
from typing import Any, Final

from headrace.core.types.pickles import pickle_value, unpickle_value
from headrace.state.ttl import NO_STAMP, TtlClock, TtlRules

_STAMP: Final = struct.Struct(">q")

STAMPS_VERSION: Final = "2"
"""How last accesses are stored: in the first version, which no snapshot names, -1 stood for none; now NO_STAMP does."""

_NO_STAMP_BEFORE: Final = _STAMP.pack(-1)
_NO_STAMP_NOW: Final = _STAMP.pack(NO_STAMP)


def stored_form(value: Any, stamp_ms: int) -> bytes:
    """Return what is stored for a value."""
    return _STAMP.pack(stamp_ms) + pickle_value(value)


def stored_value(form: bytes) -> Any:
    """Return the value of what is stored."""
    return unpickle_value(memoryview(form)[_STAMP.size :])


def stored_stamp(form: bytes) -> int:
    """Return the last access of what is stored, or NO_STAMP."""
    return _STAMP.unpack_from(form)[0]


def restamped(form: bytes) -> bytes | None:
    """Return what the first version of stamps stored, as it is stored now; None where that is the same."""
    return _NO_STAMP_NOW + form[_STAMP.size :] if form.startswith(_NO_STAMP_BEFORE) else None


@dataclass(frozen=True)
class Lifetime:
    """A time to live, and the clock that it goes by."""

    rules: TtlRules
    clock: TtlClock

    def is_over(self, form: bytes, now_ms: int) -> bool:
        """Whether the time of what is stored is over."""
        stamp_ms = stored_stamp(form)
        if stamp_ms == NO_STAMP:
            stamp_ms = self.clock.untimed_ms()
        return self.rules.is_expired(stamp_ms, now_ms)

    def stamp_over(self, table: Any, composite: bytes) -> int:
        """Return the last access of what is accessed now; in event time records may come out of order."""
        access_ms = self.clock.access_ms()
        held = table.get(composite) if self.rules.is_event_time else None
        return access_ms if held is None else max(access_ms, stored_stamp(held))
