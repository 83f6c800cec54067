"""Words for an option's type and default, as the list of options shows them.

Sizes as people read them.
"""

import enum
from datetime import timedelta
from typing import Any, Final

from headrace.core.config import ConfigOption, SizeBytes

_TYPE_NAMES: Final = {timedelta: "duration", SizeBytes: "size", str: "text", bool: "true or false"}
_SIZES: Final = ((1 << 30, "gb"), (1 << 20, "mb"), (1 << 10, "kb"))
_DURATIONS: Final = ((60_000, "min"), (1_000, "s"))


def type_text(option: ConfigOption[Any]) -> str:
    """Name the type of an option's values."""
    return _TYPE_NAMES.get(option.value_type, option.value_type.__name__)


def default_text(value: object) -> str:
    """Write a default as a user would in `-D key=value`."""
    match value:
        case None:
            return "(none)"
        case bool():
            return str(value).lower()
        case enum.Enum():
            return value.name
        case timedelta():
            return _with_unit(value // timedelta(milliseconds=1), _DURATIONS, "ms")
        case SizeBytes():
            return _with_unit(value, _SIZES, "bytes")
        case _:
            return str(value) or "(empty)"


def _with_unit(value: int, units: tuple[tuple[int, str], ...], smallest: str) -> str:
    for factor, unit in units:
        if value and value % factor == 0:
            return f"{value // factor} {unit}"
    return f"{value} {smallest}"


_UNITS: Final = ("B", "KB", "MB", "GB", "TB")


def bytes_text(size_bytes: int) -> str:
    """Bytes in the unit that people would choose."""
    value, unit = float(size_bytes), 0
    while value >= 1024 and unit < len(_UNITS) - 1:
        value, unit = value / 1024, unit + 1
    return f"{value:.0f} {_UNITS[unit]}" if unit == 0 else f"{value:.1f} {_UNITS[unit]}"
