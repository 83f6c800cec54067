"""PyFlink's `datastream.connectors.number_seq`: re-exports."""

from headrace.connectors.datagen.source import NumberSequenceSource

__all__ = [
    "NumberSequenceSource",
]
