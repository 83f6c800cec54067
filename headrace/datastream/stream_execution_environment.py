"""PyFlink's `datastream.stream_execution_environment`: re-exports."""

from headrace.api.environment import StreamExecutionEnvironment

__all__ = [
    "StreamExecutionEnvironment",
]
