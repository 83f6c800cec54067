"""Event time that a task has reached, as its metrics tell it.

It is that of one subtask. Of several, `headrace run --progress` shows the least once each of them has one, `headrace
top` and the history of a job that of those which have one.
"""

from collections.abc import Callable
from typing import Final

from headrace.core.elements import MAX_WATERMARK, MIN_TIMESTAMP
from headrace.metrics.metric_name import MetricName
from headrace.metrics.names import CURRENT_INPUT_WATERMARK, CURRENT_OUTPUT_WATERMARK

_ROUNDING: Final = 1024
"""Watermarks come as doubles: the largest may come a little smaller or larger."""


def event_time_of(value_of: Callable[[MetricName], float | None]) -> int | None:
    """Return the watermark that came in or, of a source, which receives none, that it sent; None before the first.

    `value_of`: the value of a metric, None where there is none. Epoch milliseconds.
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
    """Return by how much event time is behind the clock; None before the first watermark and after the last one."""
    return None if event_time_ms is None or is_last(event_time_ms) else now_ms - event_time_ms
