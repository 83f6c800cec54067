"""PyFlink's `datastream.execution_mode`: re-exports."""

from headrace.api.settings.environment_settings import RuntimeExecutionMode

__all__ = [
    "RuntimeExecutionMode",
]
