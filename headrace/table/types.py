"""PyFlink's `table.types`: DataTypes; every other name is refused in a sentence."""

from headrace.core.pyflink_refusals import refuse_name as __getattr__
from headrace.core.types.data_types import DataTypes

__all__ = ["DataTypes", "__getattr__"]
