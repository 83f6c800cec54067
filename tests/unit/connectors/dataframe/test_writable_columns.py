"""Columns for which a sink that Spark writes is refused, where the program is built."""

import pytest

from headrace.api.environment import StreamExecutionEnvironment
from headrace.connectors.dataframe.sink import (
    DataFrameSink,
    IdempotentForeachBatchSink,
    columns_that_become_strings,
    unwritable_column,
)
from headrace.core.errors import ProgramError
from headrace.core.types.type_info import BigDecimalTypeInfo, TypeInformation, Types

FORMATS = ("parquet", "csv", "json", "orc", "text", "avro", "xml", "delta")
SINGLE_VALUES = {
    "boolean": Types.BOOLEAN(),
    "byte": Types.BYTE(),
    "short": Types.SHORT(),
    "int": Types.INT(),
    "long": Types.LONG(),
    "float": Types.FLOAT(),
    "double": Types.DOUBLE(),
    "bytes": Types.PRIMITIVE_ARRAY(Types.BYTE()),
    "decimal": BigDecimalTypeInfo(38, 10),
    "date": Types.SQL_DATE(),
    "timestamp": Types.SQL_TIMESTAMP(),
}
STRINGS = {"string": Types.STRING(), "char": Types.CHAR(), "big": Types.BIG_INT()}
NESTED = {
    "list": Types.LIST(Types.INT()),
    "map": Types.MAP(Types.STRING(), Types.INT()),
    "row": Types.ROW_NAMED(["inner"], [Types.INT()]),
    "instant": Types.INSTANT(),
}
NOT_IN_SPARK = {
    "time": Types.SQL_TIME(),
    "times": Types.LIST(Types.SQL_TIME()),
    "row of time": Types.ROW_NAMED(["at"], [Types.SQL_TIME()]),
    "long decimal": BigDecimalTypeInfo(50, 10),
}


def refused_formats(field_type: TypeInformation) -> set[str]:
    row = Types.ROW_NAMED(["x"], [field_type])
    return {one for one in FORMATS if unwritable_column(row, one) is not None}


@pytest.mark.parametrize("name", SINGLE_VALUES)
def test_single_values_go_everywhere_but_into_text(name: str) -> None:
    assert refused_formats(SINGLE_VALUES[name]) == {"text"}


@pytest.mark.parametrize("name", STRINGS)
def test_a_string_goes_everywhere(name: str) -> None:
    assert refused_formats(STRINGS[name]) == set()


@pytest.mark.parametrize("name", NESTED)
def test_csv_holds_no_nested_values(name: str) -> None:
    assert refused_formats(NESTED[name]) == {"csv", "text"}


@pytest.mark.parametrize("name", NOT_IN_SPARK)
def test_what_spark_has_no_type_for_is_refused_in_every_format(name: str) -> None:
    assert refused_formats(NOT_IN_SPARK[name]) == set(FORMATS)


def test_two_columns_are_no_text() -> None:
    pair = Types.ROW_NAMED(["a", "b"], [Types.STRING(), Types.STRING()])
    assert unwritable_column(pair, "text") == (
        "text files hold a single column of strings, not 'a' (string), 'b' (string)"
    )
    assert unwritable_column(Types.STRING(), "TEXT") is None


def test_a_time_of_day_is_refused_by_sink_to_with_the_line() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    row = Types.ROW_NAMED(["at"], [Types.SQL_TIME()])
    stream = env.from_collection([1]).map(lambda n: None, output_type=row)
    with pytest.raises(
        ProgramError,
        match=r"'parquet': column 'at' holds a time of day.*test_writable_columns\.py, line \d+",
    ):
        stream.sink_to(DataFrameSink("out"))
    with pytest.raises(ProgramError, match=r"cannot make a DataFrame: column 'at' holds a time"):
        stream.sink_to(IdempotentForeachBatchSink(lambda df, checkpoint_id: None, "staging"))


def test_numbers_of_any_size_are_said_to_become_strings(caplog: pytest.LogCaptureFixture) -> None:
    row = Types.ROW_NAMED(
        ["n", "price", "parts", "fixed"],
        [Types.INT(), Types.BIG_DEC(), Types.LIST(Types.BIG_INT()), BigDecimalTypeInfo(38, 2)],
    )
    assert columns_that_become_strings(row) == ["price", "parts"]
    assert columns_that_become_strings(Types.BIG_INT()) == ["value"]
    DataFrameSink("out").check_input(row)
    assert "DataFrameSink writes 'price', 'parts' as strings" in caplog.text
