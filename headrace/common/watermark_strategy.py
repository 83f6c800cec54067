"""PyFlink's `common.watermark_strategy`: re-exports; and Flink's generators, which PyFlink does not have."""

from headrace.functions.jvm_functions import AssignerWithPeriodicWatermarksWrapper
from headrace.functions.watermark_generators import WatermarkGenerator, WatermarkOutput
from headrace.functions.watermarks import TimestampAssigner, WatermarkStrategy

__all__ = [
    "AssignerWithPeriodicWatermarksWrapper",
    "TimestampAssigner",
    "WatermarkGenerator",
    "WatermarkOutput",
    "WatermarkStrategy",
]
