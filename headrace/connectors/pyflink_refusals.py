"""Connectors and formats of PyFlink that wrap Java libraries: they can be imported, and are refused when used.

Enums are plain values and stay as they are. `MOVED_NAMES` lists the names that PyFlink's `datastream.connectors` had
until 1.15: they are refused with the name of their current module.
"""

import enum
from typing import Final, NoReturn

from headrace.core.errors import ProgramError
from headrace.core.pyflink_refusals import jvm_only

_OWN: Final = "write a Source or a Sink in Python, or go through Spark's DataFrames"

FlinkKafkaConsumer: Final = jvm_only("FlinkKafkaConsumer", "use KafkaSource")
FlinkKafkaProducer: Final = jvm_only("FlinkKafkaProducer", "use KafkaSink")
StreamingFileSink: Final = jvm_only("StreamingFileSink", "use FileSink, with sink_to")


class Semantic(enum.Enum):
    """Delivery guarantees of FlinkKafkaProducer."""

    EXACTLY_ONCE = (0,)
    AT_LEAST_ONCE = (1,)
    NONE = 2


_KAFKA: Final = "use KafkaSource, whose partitions may be fixed or found by a pattern"
DynamicKafkaSource: Final = jvm_only("DynamicKafkaSource", _KAFKA)
DynamicKafkaSourceBuilder: Final = jvm_only("DynamicKafkaSourceBuilder", _KAFKA)
KafkaMetadataService: Final = jvm_only("KafkaMetadataService", _KAFKA)
SingleClusterTopicMetadataService: Final = jvm_only("SingleClusterTopicMetadataService", _KAFKA)
KafkaStreamSubscriber: Final = jvm_only("KafkaStreamSubscriber", _KAFKA)
KafkaStreamSetSubscriber: Final = jvm_only("KafkaStreamSetSubscriber", _KAFKA)
StreamPatternSubscriber: Final = jvm_only("StreamPatternSubscriber", _KAFKA)
KafkaRecordDeserializationSchema: Final = jvm_only(
    "KafkaRecordDeserializationSchema", "use KafkaSource with set_value_only_deserializer"
)


class FlushBackoffType(enum.Enum):
    """Backoff between the retries of an Elasticsearch sink."""

    CONSTANT = (0,)
    EXPONENTIAL = (1,)
    NONE = (2,)


ElasticsearchEmitter: Final = jvm_only("ElasticsearchEmitter", _OWN)
ElasticsearchSinkBuilderBase: Final = jvm_only("ElasticsearchSinkBuilderBase", _OWN)
Elasticsearch6SinkBuilder: Final = jvm_only("Elasticsearch6SinkBuilder", _OWN)
Elasticsearch7SinkBuilder: Final = jvm_only("Elasticsearch7SinkBuilder", _OWN)
ElasticsearchSink: Final = jvm_only("ElasticsearchSink", _OWN)


class ConsistencyLevel(enum.Enum):
    """Number of Cassandra's replicas that must answer."""

    ANY = 0
    ONE = 1
    TWO = 2
    THREE = 3
    QUORUM = 4
    ALL = 5
    LOCAL_QUORUM = 6
    EACH_QUORUM = 7
    SERIAL = 8
    LOCAL_SERIAL = 9
    LOCAL_ONE = 10


CassandraSink: Final = jvm_only("CassandraSink", _OWN)
MapperOptions: Final = jvm_only("MapperOptions", _OWN)
ClusterBuilder: Final = jvm_only("ClusterBuilder", _OWN)
CassandraCommitter: Final = jvm_only("CassandraCommitter", _OWN)
CassandraFailureHandler: Final = jvm_only("CassandraFailureHandler", _OWN)

KinesisShardAssigner: Final = jvm_only("KinesisShardAssigner", _OWN)
KinesisDeserializationSchema: Final = jvm_only("KinesisDeserializationSchema", _OWN)
WatermarkTracker: Final = jvm_only("WatermarkTracker", _OWN)
PartitionKeyGenerator: Final = jvm_only("PartitionKeyGenerator", _OWN)
FlinkKinesisConsumer: Final = jvm_only("FlinkKinesisConsumer", _OWN)
KinesisStreamsSink: Final = jvm_only("KinesisStreamsSink", _OWN)
KinesisStreamsSinkBuilder: Final = jvm_only("KinesisStreamsSinkBuilder", _OWN)
KinesisFirehoseSink: Final = jvm_only("KinesisFirehoseSink", _OWN)
KinesisFirehoseSinkBuilder: Final = jvm_only("KinesisFirehoseSinkBuilder", _OWN)


class TopicRoutingMode(enum.Enum):
    """Modes in which a Pulsar sink chooses partitions."""

    ROUND_ROBIN = 0
    MESSAGE_KEY_HASH = 1
    CUSTOM = 2


PulsarSource: Final = jvm_only("PulsarSource", _OWN)
PulsarSourceBuilder: Final = jvm_only("PulsarSourceBuilder", _OWN)
StartCursor: Final = jvm_only("StartCursor", _OWN)
StopCursor: Final = jvm_only("StopCursor", _OWN)
RangeGenerator: Final = jvm_only("RangeGenerator", _OWN)
PulsarDeserializationSchema: Final = jvm_only("PulsarDeserializationSchema", _OWN)
PulsarSerializationSchema: Final = jvm_only("PulsarSerializationSchema", _OWN)
SubscriptionType: Final = jvm_only("SubscriptionType", _OWN)
PulsarSink: Final = jvm_only("PulsarSink", _OWN)
PulsarSinkBuilder: Final = jvm_only("PulsarSinkBuilder", _OWN)
MessageDelayer: Final = jvm_only("MessageDelayer", _OWN)

RMQConnectionConfig: Final = jvm_only("RMQConnectionConfig", _OWN)
RMQSource: Final = jvm_only("RMQSource", _OWN)
RMQSink: Final = jvm_only("RMQSink", _OWN)


_CSV_LINES: Final = (
    "use SimpleStringSchema and Python's csv in a map, or messages of JSON with JsonRowDeserializationSchema and "
    "JsonRowSerializationSchema"
)
_AVRO: Final = (
    "for files, make a DataFrame with Spark and use from_dataframe and DataFrameSink(path, format='avro'); for "
    "messages, use ByteArraySchema and a Python library such as fastavro in a map"
)

CsvRowDeserializationSchema: Final = jvm_only("CsvRowDeserializationSchema", _CSV_LINES)
CsvRowSerializationSchema: Final = jvm_only("CsvRowSerializationSchema", _CSV_LINES)

AvroSchema: Final = jvm_only("AvroSchema", _AVRO)
GenericRecordAvroTypeInfo: Final = jvm_only("GenericRecordAvroTypeInfo", _AVRO)
AvroInputFormat: Final = jvm_only("AvroInputFormat", _AVRO)
AvroBulkWriters: Final = jvm_only("AvroBulkWriters", _AVRO)
AvroRowDeserializationSchema: Final = jvm_only("AvroRowDeserializationSchema", _AVRO)
AvroRowSerializationSchema: Final = jvm_only("AvroRowSerializationSchema", _AVRO)
AvroParquetReaders: Final = jvm_only("AvroParquetReaders", "use ParquetColumnarRowInputFormat")
AvroParquetWriters: Final = jvm_only("AvroParquetWriters", "use ParquetBulkWriters")
OrcBulkWriters: Final = jvm_only(
    "OrcBulkWriters", "use DataFrameSink(path, format='orc'), or ParquetBulkWriters"
)


_PACKAGE: Final = "headrace.datastream.connectors"
_MOVED_FILES: Final = (
    "BucketAssigner", "FileEnumeratorProvider", "FileSink", "FileSource", "FileSourceBuilder",
    "FileSplitAssignerProvider", "OutputFileConfig", "RollingPolicy", "StreamFormat", "StreamingFileSink",
)  # fmt: skip
_MOVED_KAFKA: Final = ("FlinkKafkaConsumer", "FlinkKafkaProducer", "KafkaSink", "KafkaSource")
_MOVED_PULSAR: Final = ("PulsarSource", "PulsarSourceBuilder", "StartCursor", "StopCursor")
MOVED_NAMES: Final = {
    **dict.fromkeys(_MOVED_FILES, "file_system"),
    **dict.fromkeys(("JdbcConnectionOptions", "JdbcExecutionOptions", "JdbcSink"), "jdbc"),
    **dict.fromkeys(_MOVED_KAFKA, "kafka"),
    **dict.fromkeys(_MOVED_PULSAR, "pulsar"),
    **dict.fromkeys(("RMQConnectionConfig", "RMQSink", "RMQSource"), "rabbitmq"),
    "NumberSequenceSource": "number_seq",
}
"""Module of each name, below the package."""


def refuse_moved_name(name: str) -> NoReturn:
    """Refuse a moved name; ProgramError names its module. Used as `__getattr__` of the package."""
    if name not in MOVED_NAMES:
        raise AttributeError(f"module '{_PACKAGE}' has no attribute '{name}'")
    raise ProgramError(
        f"{name} has left this package in Flink 1.16: import it from {_PACKAGE}.{MOVED_NAMES[name]}"
    )
