"""PyFlink 1.x's `datastream.time_characteristic`: re-exports."""

from headrace.api.settings.pyflink_refusals import TimeCharacteristic

__all__ = [
    "TimeCharacteristic",
]
