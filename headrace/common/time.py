"""PyFlink's `common.time`: re-exports."""

from headrace.core.types.time_values import Duration, Instant, Time

__all__ = ["Duration", "Instant", "Time"]
