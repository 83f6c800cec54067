"""Sizes as people read them."""

from typing import Final

_UNITS: Final = ("B", "KB", "MB", "GB", "TB")


def bytes_text(size_bytes: int) -> str:
    """Bytes in the unit that people would choose."""
    value, unit = float(size_bytes), 0
    while value >= 1024 and unit < len(_UNITS) - 1:
        value, unit = value / 1024, unit + 1
    return f"{value:.0f} {_UNITS[unit]}" if unit == 0 else f"{value:.1f} {_UNITS[unit]}"
