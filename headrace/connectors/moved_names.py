"""Names that PyFlink's `datastream.connectors` had itself until 1.15: refused with the module that has them now."""

from typing import Final, NoReturn

from headrace.core.errors import ProgramError

_PACKAGE: Final = "headrace.datastream.connectors"
_FILES: Final = (
    "BucketAssigner", "FileEnumeratorProvider", "FileSink", "FileSource", "FileSourceBuilder",
    "FileSplitAssignerProvider", "OutputFileConfig", "RollingPolicy", "StreamFormat", "StreamingFileSink",
)  # fmt: skip
_KAFKA: Final = ("FlinkKafkaConsumer", "FlinkKafkaProducer", "KafkaSink", "KafkaSource")
_PULSAR: Final = ("PulsarSource", "PulsarSourceBuilder", "StartCursor", "StopCursor")
MODULES: Final = {
    **dict.fromkeys(_FILES, "file_system"),
    **dict.fromkeys(("JdbcConnectionOptions", "JdbcExecutionOptions", "JdbcSink"), "jdbc"),
    **dict.fromkeys(_KAFKA, "kafka"),
    **dict.fromkeys(_PULSAR, "pulsar"),
    **dict.fromkeys(("RMQConnectionConfig", "RMQSink", "RMQSource"), "rabbitmq"),
    "NumberSequenceSource": "number_seq",
}
"""The module below the package that has each name."""


def refuse_moved_name(name: str) -> NoReturn:
    """Refuse a name that moved; ProgramError says where it is. Stands as `__getattr__` in the package."""
    if name not in MODULES:
        raise AttributeError(f"module '{_PACKAGE}' has no attribute '{name}'")
    raise ProgramError(
        f"{name} has left this package in Flink 1.16: import it from {_PACKAGE}.{MODULES[name]}"
    )
