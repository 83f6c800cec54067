"""PyFlink 1.x's `common.execution_mode`: re-exports."""

from headrace.api.gone_names import ExecutionMode

__all__ = [
    "ExecutionMode",
]
