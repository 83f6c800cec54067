"""Event time that a task has reached, according to its metrics.

For several subtasks, `headrace run --progress` shows the minimum once each of them has one; `headrace top` and the
history of a job show the minimum of those that have one.
"""

from collections.abc import Callable
from typing import Final

from headrace.core.elements import MAX_WATERMARK, MIN_TIMESTAMP
from headrace.metrics.metric_name import MetricName
from headrace.metrics.names import CURRENT_INPUT_WATERMARK, CURRENT_OUTPUT_WATERMARK

_ROUNDING: Final = 1024
"""Watermarks arrive as doubles: the largest may be rounded up or down."""


def event_time_of(value_of: Callable[[MetricName], float | None]) -> int | None:
    """Return the received watermark or, for a source, which receives none, the sent one; None before the first.

    `value_of` returns the value of a metric, or None. The result is in epoch milliseconds.
    """
    for row in (CURRENT_INPUT_WATERMARK, CURRENT_OUTPUT_WATERMARK):
        value = value_of(row)
        if value is not None and value > MIN_TIMESTAMP + _ROUNDING:
            return int(value)
    return None


def is_last(event_time_ms: int) -> bool:
    """Return whether a watermark is the one that ends a stream."""
    return event_time_ms >= MAX_WATERMARK - _ROUNDING


def lag_ms(event_time_ms: int | None, now_ms: int) -> int | None:
    """Return how far event time is behind the clock; None before the first watermark and after the last one."""
    return None if event_time_ms is None or is_last(event_time_ms) else now_ms - event_time_ms
