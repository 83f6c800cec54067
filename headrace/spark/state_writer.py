"""Public import path of StateWriter, whose code is in `state_tables`."""

from headrace.spark.state_tables.state_writer import StateWriter

__all__ = ["StateWriter"]
