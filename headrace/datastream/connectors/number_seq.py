"""PyFlink's `datastream.connectors.number_seq`: re-exports."""

from headrace.connectors.number_sequence.source import NumberSequenceSource

__all__ = [
    "NumberSequenceSource",
]
