"""PyFlink's `common.watermark_strategy`: re-exports."""

from headrace.functions.watermarks import TimestampAssigner, WatermarkStrategy

__all__ = ["TimestampAssigner", "WatermarkStrategy"]
