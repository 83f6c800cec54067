"""PyFlink's `common.constants`: re-exports."""

from headrace.core.elements import MAX_WATERMARK as MAX_LONG_VALUE
from headrace.core.elements import MIN_TIMESTAMP as MIN_LONG_VALUE
from headrace.functions.process import DEFAULT_OUTPUT_TAG

__all__ = ["DEFAULT_OUTPUT_TAG", "MAX_LONG_VALUE", "MIN_LONG_VALUE"]
