"""PyFlink's `datastream.connectors`: re-exports. What stood here until Flink 1.15 says where it is now."""

from typing import Final

from headrace.core.gone_names import refuse_moved
from headrace.functions.sink import DeliveryGuarantee, Sink
from headrace.functions.source import Source

_FILES: Final = (
    "BucketAssigner", "FileEnumeratorProvider", "FileSink", "FileSource", "FileSourceBuilder",
    "FileSplitAssignerProvider", "OutputFileConfig", "RollingPolicy", "StreamFormat", "StreamingFileSink",
)  # fmt: skip
_PULSAR: Final = ("PulsarSource", "PulsarSourceBuilder", "StartCursor", "StopCursor")
_MOVED: Final = {
    **dict.fromkeys(_FILES, "file_system"),
    **dict.fromkeys(("JdbcConnectionOptions", "JdbcExecutionOptions", "JdbcSink"), "jdbc"),
    **dict.fromkeys(("FlinkKafkaConsumer", "FlinkKafkaProducer"), "kafka"),
    **dict.fromkeys(("KafkaSink", "KafkaSource"), "kafka"),
    **dict.fromkeys(_PULSAR, "pulsar"),
    **dict.fromkeys(("RMQConnectionConfig", "RMQSink", "RMQSource"), "rabbitmq"),
    "NumberSequenceSource": "number_seq",
}

__getattr__ = refuse_moved(__name__, _MOVED)

__all__ = [
    "Sink",
    "DeliveryGuarantee",
    "Source",
]
