"""PyFlink's `datastream.output_tag`: re-exports."""

from headrace.functions.process import OutputTag

__all__ = [
    "OutputTag",
]
