"""PyFlink's `common.watermark_strategy`: re-exports; and Flink's watermark generators, which PyFlink does not have."""

from headrace.core.pyflink_refusals import AssignerWithPeriodicWatermarksWrapper
from headrace.functions.watermarks import (
    TimestampAssigner,
    WatermarkGenerator,
    WatermarkOutput,
    WatermarkStrategy,
)

__all__ = [
    "AssignerWithPeriodicWatermarksWrapper",
    "TimestampAssigner",
    "WatermarkGenerator",
    "WatermarkOutput",
    "WatermarkStrategy",
]
