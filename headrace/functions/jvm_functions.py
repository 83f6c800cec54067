"""Functions of PyFlink's that wrap Java objects: importable, refused when used."""

from typing import Final

from headrace.core.jvm_only import jvm_only

NO_SOURCE_FUNCTIONS: Final = (
    "give a Source to from_source, such as those of headrace.datastream.connectors"
)
"""What to do instead of giving a SourceFunction to `add_source`."""
NO_SINK_FUNCTIONS: Final = "give a Sink to sink_to, such as those of headrace.datastream.connectors"
"""What to do instead of giving a SinkFunction to `add_sink`."""

SourceFunction: Final = jvm_only("SourceFunction", NO_SOURCE_FUNCTIONS)
SinkFunction: Final = jvm_only("SinkFunction", NO_SINK_FUNCTIONS)
RowFieldExtractorSchema: Final = jvm_only(
    "RowFieldExtractorSchema",
    "write a SerializationSchema whose serialize returns the bytes of that field",
)
AssignerWithPeriodicWatermarksWrapper: Final = jvm_only(
    "AssignerWithPeriodicWatermarksWrapper",
    "write a WatermarkStrategy with a TimestampAssigner, or with a WatermarkGenerator",
)
