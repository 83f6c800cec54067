import pyarrow as pa
import pytest

from headrace.core.errors import ProgramError
from headrace.functions.sources.dataframe_columns import check_dataframe_schema, conform

SCHEMA = pa.schema([("id", pa.int64()), ("at", pa.int64())])


def test_columns_that_spark_gave_another_arrow_type_are_cast() -> None:
    large = pa.RecordBatch.from_arrays([pa.array(["x"], pa.large_string())], names=["s"])
    assert conform(large, pa.schema([("s", pa.string())])).schema.field("s").type == pa.string()


@pytest.mark.parametrize(
    ("schema", "event_time", "text"),
    [
        (pa.schema([]), None, "has no columns"),
        (pa.schema([("a", pa.int64()), ("a", pa.int64())]), None, "more than one column 'a'"),
        (SCHEMA, "when", "no column 'when' for the event time; it has: id, at"),
        (
            pa.schema([("t", pa.string())]),
            "t",
            "'t' is of type string, which cannot be an event time",
        ),
        (
            pa.schema([("t", pa.float64())]),
            "t",
            "'t' is of type double, which cannot be an event time",
        ),
    ],
)
def test_columns_that_cannot_be_a_stream_are_refused(
    schema: pa.Schema, event_time: str | None, text: str
) -> None:
    with pytest.raises(ProgramError, match=text):
        check_dataframe_schema(schema, event_time)


@pytest.mark.parametrize("event_time_type", [pa.timestamp("us", "UTC"), pa.date32(), pa.int64()])
def test_columns_of_times_may_give_the_event_time(event_time_type: pa.DataType) -> None:
    check_dataframe_schema(pa.schema([("t", event_time_type)]), "t")
