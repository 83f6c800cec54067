"""Headrace: Flink's streaming runtime in Python, hosted on Spark."""

__version__ = "0.1.0.dev0"

__all__ = ["__version__"]
