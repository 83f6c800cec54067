"""PyFlink 1.x's `common.execution_mode`: re-exports."""

from headrace.api.settings.pyflink_refusals import ExecutionMode

__all__ = [
    "ExecutionMode",
]
