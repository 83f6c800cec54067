"""The data source `headrace-state`, in a module that Spark finds by itself: `pyspark_…` with a `DefaultSource`."""

from headrace.spark.state_tables.state_source import HeadraceStateSource as DefaultSource

__all__ = ["DefaultSource"]
