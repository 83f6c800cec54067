"""PyFlink 1.x's `datastream.time_characteristic`: re-exports."""

from headrace.api.gone_names import TimeCharacteristic

__all__ = [
    "TimeCharacteristic",
]
