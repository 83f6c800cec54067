"""Formats figures for people: rates, shares, watermarks, sizes, times, durations, and tables of them."""

from collections.abc import Sequence, Set
from datetime import UTC, datetime
from typing import Final

from headrace.core.config import bytes_text
from headrace.core.error_text import on_one_line
from headrace.metrics.event_time import is_last

_CELL_LENGTH_MAX: Final = 60


def watermark_text(watermark_ms: int | None) -> str:
    """Return a watermark as `2013-03-01 07:15`, `end` after the last one, `-` before the first."""
    if watermark_ms is None:
        return "-"
    if is_last(watermark_ms):
        return "end"
    return datetime.fromtimestamp(watermark_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M")


def rate_text(records_per_second: float) -> str:
    """Return a rate as `950`, `12.3 k` or `1.20 M`."""
    if records_per_second >= 1e6:
        return f"{records_per_second / 1e6:.2f} M"
    if records_per_second >= 1e4:
        return f"{records_per_second / 1e3:.1f} k"
    return f"{records_per_second:.0f}"


def share_text(share: float | None) -> str:
    """Return a share of time in percent, or an empty string if there is none."""
    return "" if share is None else f"{share:.0%}"


def shorten(text: str, length: int) -> str:
    """Cut `text` to `length` characters, with an ellipsis for the missing part."""
    return text if len(text) <= length else text[: length - 1] + "…"


def utc_text(epoch_ms: int) -> str:
    """Return a time in UTC, to the second; or the number itself if it is outside the calendar."""
    try:
        return datetime.fromtimestamp(epoch_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (OverflowError, ValueError, OSError):
        return str(epoch_ms)


def table_lines(
    heads: Sequence[str],
    rows: Sequence[Sequence[str]],
    right: Set[int] = frozenset(),
    *,
    cut: bool = True,
) -> list[str]:
    """Return a table in columns. `right`: right-aligned columns; `cut`: long cells are cut at their end."""
    shown = [
        [shorten(on_one_line(cell), _CELL_LENGTH_MAX) if cut else on_one_line(cell) for cell in row]
        for row in [heads, *rows]
    ]
    widths = [max(map(len, column)) for column in zip(*shown, strict=True)]
    return [
        "  ".join(
            cell.rjust(width) if place in right else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in shown
    ]


def duration_text(duration_ms: float) -> str:
    """Return a duration as `0.4 s`, `12 s`, `3 min`, `2 h 05 min` or `4 d 02 h`."""
    seconds = max(0.0, duration_ms / 1000)
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    minutes = int(seconds // 60)
    if minutes < 60:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes:02} min"
    days, hours = divmod(hours, 24)
    return f"{days} d {hours:02} h"


def size_or_dash(size_bytes: float) -> str:
    """Return a number of bytes with a unit; `-` if it is not known."""
    return "-" if size_bytes < 0 else bytes_text(int(size_bytes))
