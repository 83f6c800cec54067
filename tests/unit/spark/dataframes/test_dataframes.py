from typing import Any

import pytest

from headrace.core.errors import ProgramError
from headrace.spark.dataframes.dataframes import dataframe_source

STREAMING_ON_CONNECT: Any = type(
    "DataFrame", (), {"__module__": "pyspark.sql.connect.dataframe", "isStreaming": True}
)


def test_a_dataframe_that_streams_on_spark_connect_is_refused_with_another_way() -> None:
    with pytest.raises(
        ProgramError,
        match=r"streaming DataFrame of Spark Connect.*format\('headrace'\).*BatchLogSource",
    ):
        dataframe_source(STREAMING_ON_CONNECT())
