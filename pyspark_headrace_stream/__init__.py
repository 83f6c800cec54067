"""The data source `headrace`, in a module that Spark finds by itself: `pyspark_…` with a `DefaultSource`."""

from headrace.spark.dataframes.log_source import HeadraceSource as DefaultSource

__all__ = ["DefaultSource"]
