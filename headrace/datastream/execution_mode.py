"""PyFlink's `datastream.execution_mode`: re-exports."""

from headrace.api.settings.execution_config import RuntimeExecutionMode

__all__ = [
    "RuntimeExecutionMode",
]
