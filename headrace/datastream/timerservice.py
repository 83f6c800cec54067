"""PyFlink's `datastream.timerservice`: re-exports."""

from headrace.functions.process import TimerService

__all__ = [
    "TimerService",
]
