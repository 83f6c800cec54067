"""PyFlink's `datastream.execution_mode`: re-exports."""

from headrace.api.execution_mode import RuntimeExecutionMode

__all__ = [
    "RuntimeExecutionMode",
]
