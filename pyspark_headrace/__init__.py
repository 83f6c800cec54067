"""What Spark looks for by itself: modules named `pyspark_…` with a `DefaultSource`. Here it is `headrace-state`."""

from headrace.spark.state_tables.state_source import HeadraceStateSource as DefaultSource

__all__ = ["DefaultSource"]
