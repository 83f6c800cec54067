"""Functions of PyFlink's that wrap Java objects: importable, refused when used."""

from typing import Final

from headrace.core.pyflink_refusals import jvm_only

NO_SOURCE_FUNCTIONS: Final = (
    "give a Source to from_source, such as those of headrace.datastream.connectors"
)
"""What to do instead of giving a SourceFunction to `add_source`."""
NO_SINK_FUNCTIONS: Final = "give a Sink to sink_to, such as those of headrace.datastream.connectors"
"""What to do instead of giving a SinkFunction to `add_sink`."""

NO_INPUT_FORMATS: Final = (
    "give it a bounded Source, such as FileSource.for_bulk_file_format(format, path).build()"
)
"""What to do instead of giving an InputFormat to `create_input`."""

SourceFunction: Final = jvm_only("SourceFunction", NO_SOURCE_FUNCTIONS)
SinkFunction: Final = jvm_only("SinkFunction", NO_SINK_FUNCTIONS)
AssignerWithPeriodicWatermarksWrapper: Final = jvm_only(
    "AssignerWithPeriodicWatermarksWrapper",
    "write a WatermarkStrategy with a TimestampAssigner, or with a WatermarkGenerator",
)
