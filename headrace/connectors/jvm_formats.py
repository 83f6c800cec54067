"""Formats of PyFlink's, and parts of its file source, that wrap Java libraries: importable, refused when used."""

from typing import Final

from headrace.core.jvm_only import jvm_only

_CSV_LINES: Final = (
    "use SimpleStringSchema and Python's csv in a map, or messages of JSON with JsonRowDeserializationSchema and "
    "JsonRowSerializationSchema"
)
_AVRO: Final = (
    "of files make a DataFrame with Spark and use from_dataframe and DataFrameSink(path, format='avro'); of messages "
    "use ByteArraySchema and a library of Python's, such as fastavro, in a map"
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
