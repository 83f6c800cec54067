"""PyFlink's `datastream.execution_mode`: re-exports."""

from headrace.graph.job_graph_generator import RuntimeExecutionMode

__all__ = [
    "RuntimeExecutionMode",
]
