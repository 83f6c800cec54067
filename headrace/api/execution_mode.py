"""RuntimeExecutionMode under the name that PyFlink's module has; the graph defines it."""

from headrace.graph.job_graph_generator import RuntimeExecutionMode

__all__ = ["RuntimeExecutionMode"]
