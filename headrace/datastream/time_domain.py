"""PyFlink's `datastream.time_domain`: re-exports."""

from headrace.functions.process import TimeDomain

__all__ = [
    "TimeDomain",
]
