"""Headrace: Flink's streaming runtime in Python, hosted on Spark.

The names are imported when they are first used, so that the command line, which needs few of them, starts quickly.

Example:
    >>> from headrace import StreamExecutionEnvironment, Types, col
    >>> env = StreamExecutionEnvironment.get_execution_environment()
    >>> flights = env.from_collection([("EWR", 12), ("JFK", -3)], Types.ROW_NAMED(
    ...     ["origin", "delay"], [Types.STRING(), Types.INT()]))
    >>> flights.filter(col("delay") > 0).select("origin").get_type()
    RowTypeInfo(origin: String)
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headrace.api.columns import aggregates as agg
    from headrace.api.columns.expressions import coalesce, col, lit, when
    from headrace.api.environment import StreamExecutionEnvironment
    from headrace.api.streams.data_stream import DataStream
    from headrace.client.cluster_descriptor import ClusterClientFactory
    from headrace.client.rest_cluster_client import RestClusterClient
    from headrace.core.barriers import SavepointFormatType
    from headrace.core.errors import HeadraceError
    from headrace.core.types.rows import Row
    from headrace.core.types.time_values import Duration, Time
    from headrace.core.types.type_info import Types
    from headrace.functions.failures import FailurePolicy
    from headrace.functions.process import OutputTag
    from headrace.functions.watermarks import WatermarkStrategy

__version__ = "0.2.0.dev0"

__all__ = [
    "__version__",
    # programs
    "StreamExecutionEnvironment",
    "DataStream",
    "OutputTag",
    "FailurePolicy",
    "WatermarkStrategy",
    "HeadraceError",
    # clusters of other processes
    "RestClusterClient",
    "ClusterClientFactory",
    "SavepointFormatType",
    # values
    "Types",
    "Row",
    "Time",
    "Duration",
    # columns
    "col",
    "lit",
    "when",
    "coalesce",
    "agg",
]

_HOMES = {
    "StreamExecutionEnvironment": "headrace.api.environment",
    "DataStream": "headrace.api.streams.data_stream",
    "OutputTag": "headrace.functions.process",
    "FailurePolicy": "headrace.functions.failures",
    "WatermarkStrategy": "headrace.functions.watermarks",
    "HeadraceError": "headrace.core.errors",
    "RestClusterClient": "headrace.client.rest_cluster_client",
    "ClusterClientFactory": "headrace.client.cluster_descriptor",
    "SavepointFormatType": "headrace.core.barriers",
    "Types": "headrace.core.types.type_info",
    "Row": "headrace.core.types.rows",
    "Time": "headrace.core.types.time_values",
    "Duration": "headrace.core.types.time_values",
    "col": "headrace.api.columns.expressions",
    "lit": "headrace.api.columns.expressions",
    "when": "headrace.api.columns.expressions",
    "coalesce": "headrace.api.columns.expressions",
    "agg": "headrace.api.columns.aggregates",
}
"""Module that defines each exported name."""


def __getattr__(name: str) -> Any:
    """Import an exported name, and keep it."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # Imported late: it is needed at most once for each name.
    import importlib

    module = importlib.import_module(_HOMES[name])
    value = module if name == "agg" else getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """List the exported names too, imported or not."""
    return sorted({*globals(), *__all__})
