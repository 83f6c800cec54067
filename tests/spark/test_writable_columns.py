"""Types that are refused for Spark's formats are those that Spark refuses, each written to each format once."""

from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException

from headrace.connectors.dataframe.sink import unwritable_column
from headrace.core.types.arrow_types import data_schema
from headrace.core.types.type_info import BigDecimalTypeInfo, Types
from headrace.spark.session.session import HostSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(240)]

# Avro comes from a module of its own, which is not part of the package.
FORMATS = ("parquet", "csv", "json", "orc", "text", "xml")
TYPES = {
    "boolean": Types.BOOLEAN(),
    "byte": Types.BYTE(),
    "double": Types.DOUBLE(),
    "string": Types.STRING(),
    "big decimal": Types.BIG_DEC(),
    "bytes": Types.PRIMITIVE_ARRAY(Types.BYTE()),
    "decimal": BigDecimalTypeInfo(38, 10),
    "long decimal": BigDecimalTypeInfo(50, 10),
    "date": Types.SQL_DATE(),
    "time": Types.SQL_TIME(),
    "timestamp": Types.SQL_TIMESTAMP(),
    "instant": Types.INSTANT(),
    "list": Types.LIST(Types.INT()),
    "list of times": Types.LIST(Types.SQL_TIME()),
    "map": Types.MAP(Types.INT(), Types.STRING()),
    "row": Types.ROW_NAMED(["inner"], [Types.ROW_NAMED(["x"], [Types.INT()])]),
    "two strings": Types.ROW_NAMED(["a", "b"], [Types.STRING(), Types.STRING()]),
}


@pytest.mark.parametrize("name", TYPES)
def test_spark_refuses_the_same(session: HostSession, tmp_path: Path, name: str) -> None:
    staged = tmp_path / "staged.parquet"
    pq.write_table(data_schema(TYPES[name]).empty_table(), staged)
    refused: set[str] = set()
    for spark_format in FORMATS:
        try:
            writer = session.spark.read.parquet(str(staged)).write.format(spark_format)
            writer.option("rowTag", "row").save(str(tmp_path / spark_format))
        except PySparkException:
            refused.add(spark_format)
    assert refused == {one for one in FORMATS if unwritable_column(TYPES[name], one) is not None}
