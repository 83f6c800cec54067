"""PyFlink's `table.table_environment`: its names are refused in a sentence."""

from headrace.core.pyflink_refusals import refuse_name as __getattr__

__all__ = ["__getattr__"]
