"""PyFlink's `common.execution_config`: re-exports."""

from headrace.api.settings.execution_config import ExecutionConfig

__all__ = [
    "ExecutionConfig",
]
