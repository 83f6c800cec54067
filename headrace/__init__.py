"""Headrace: Flink's streaming runtime in Python, hosted on Spark.

Example:
    >>> env = StreamExecutionEnvironment.get_execution_environment()
    >>> flights = env.from_collection([("EWR", 12), ("JFK", -3)], Types.ROW_NAMED(
    ...     ["origin", "delay"], [Types.STRING(), Types.INT()]))
    >>> flights.filter(col("delay") > 0).select("origin").get_type()
    RowTypeInfo(origin: String)
"""

from headrace.api.columns import aggregates as agg
from headrace.api.columns.expressions import coalesce, col, lit, when
from headrace.api.environment import StreamExecutionEnvironment
from headrace.api.streams.data_stream import DataStream
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
