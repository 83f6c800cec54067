"""Values and their types, as docs/sources_and_sinks.md describes them."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from headrace.connectors.files.formats.columnar_formats import (
    ColumnarFormat,
    CsvReaderFormat,
    JsonLinesFormat,
)
from headrace.connectors.files.source.file_source import FileSource
from headrace.connectors.json.json_rows import JsonRowDeserializationSchema
from headrace.core.errors import RecordTypeError
from headrace.core.types.arrow_mapping import values_to_array
from headrace.core.types.arrow_types import cast_column
from headrace.core.types.round_trip_normalizer import RoundTripNormalizer
from headrace.core.types.rows import Row
from headrace.core.types.type_info import TypeInformation, Types
from headrace.functions.sources.collection_source import CollectionSource
from tests.unit.connectors.replays import SourceJob

FLOAT_MAX = 3.4028234663852886e38


@pytest.mark.parametrize(
    ("declared", "largest", "smallest"),
    [
        (Types.BYTE(), 127, -128),
        (Types.SHORT(), 32_767, -32_768),
        (Types.INT(), 2**31 - 1, -(2**31)),
        (Types.LONG(), 2**63 - 1, -(2**63)),
        (Types.FLOAT(), FLOAT_MAX, -FLOAT_MAX),
        (Types.FLOAT(), float("inf"), float("-inf")),
        (Types.BIG_INT(), 2**63, -(2**64)),
        (None, 2**63, -(2**64)),
    ],
)
def test_numbers_that_fit_arrive_as_they_are(
    declared: TypeInformation | None, largest: float, smallest: float
) -> None:
    source = CollectionSource([largest, smallest], declared)
    assert source.produced_type is not None
    job = SourceJob(source, 1, source.produced_type)
    job.run_to_end()
    assert job.rows == [largest, smallest]


TOO_LARGE = [
    (Types.BYTE(), 128, "8 bits, got int 128"),
    (Types.SHORT(), -32_769, "16 bits"),
    (Types.INT(), 3_000_000_000, r"32 bits, got int 3000000000 \(Types.LONG\(\) holds 64\)"),
    (Types.LONG(), 2**63, r"64 bits, .* \(Types.BIG_INT\(\) holds any\)"),
    (Types.FLOAT(), 1e300, "32 bits can hold"),
    (Types.FLOAT(), 10**400, "a float can hold"),
    (Types.DOUBLE(), 10**400, "a float can hold"),
    (Types.PRIMITIVE_ARRAY(Types.BYTE()), [1, 256], "8 bits, -128 to 255"),
]


@pytest.mark.parametrize(("declared", "value", "reason"), TOO_LARGE)
def test_a_number_too_large_for_its_type_is_refused_by_name_wherever_it_lies(
    declared: TypeInformation, value: object, reason: str
) -> None:
    row = Types.ROW_NAMED(["id", "value"], [Types.LONG(), declared])
    for declared_here, record in (
        (declared, value),
        (row, (1, value)),
        (Types.TUPLE([declared]), (value,)),
        (Types.LIST(declared), [value]),
        (Types.MAP(Types.STRING(), declared), {"a": value}),
    ):
        with pytest.raises(RecordTypeError, match=reason):
            CollectionSource([record], declared_here)


@pytest.mark.parametrize("value", [np.int64(3_000_000_000), True])
def test_numbers_of_numpy_and_truth_values_are_integers_with_the_same_limits(value: object) -> None:
    if value is True:
        assert values_to_array([value], Types.INT()).to_pylist() == [1]
    else:
        with pytest.raises(RecordTypeError, match="32 bits"):
            values_to_array([value], Types.INT())


def test_state_refuses_an_integer_that_is_too_large() -> None:
    with pytest.raises(RecordTypeError, match="70000"):
        RoundTripNormalizer.of(Types.SHORT()).keep(70_000)
    with pytest.raises(RecordTypeError, match="32 bits can hold"):
        RoundTripNormalizer.of(Types.FLOAT()).keep(1e300)


def test_columns_of_larger_floats_become_smaller_ones_only_where_they_can() -> None:
    kept = pa.array([1.5, None, float("inf"), float("nan"), FLOAT_MAX])
    assert str(cast_column(kept, pa.float32())) == str(kept.cast(pa.float32()))
    with pytest.raises(pa.ArrowInvalid, match=r"1e\+300 is too large for 32 bits"):
        cast_column(pa.array([1.5, None, 1e300]), pa.float32())


@pytest.mark.parametrize(
    ("file_format", "content"),
    [
        (CsvReaderFormat, "id,a\n1,1.5\n2,1e300\n"),
        (JsonLinesFormat, '{"id": 1, "a": 1.5}\n{"id": 2, "a": 1e300}\n'),
    ],
)
def test_files_of_text_hold_no_number_that_is_too_large_for_a_float_of_32_bits(
    file_format: type[ColumnarFormat], content: str, tmp_path: Path
) -> None:
    path = tmp_path / "numbers"
    path.write_text(content)
    row = Types.ROW_NAMED(["id", "a"], [Types.LONG(), Types.FLOAT()])
    source = FileSource.for_record_stream_format(file_format(row), str(path)).build()
    assert source.produced_type is not None
    with pytest.raises(ValueError, match=r"numbers', from byte 0 on: .*1e\+300 is too large"):
        SourceJob(source, 1, source.produced_type).run_to_end()


def test_json_reads_no_number_that_is_too_large_for_a_float_of_32_bits() -> None:
    row = Types.ROW_NAMED(["a"], [Types.FLOAT()])
    schema = JsonRowDeserializationSchema.builder().type_info(row).build()
    assert schema.deserialize(b'{"a": 3.4028235e38}') == Row(a=3.4028235e38)
    with pytest.raises(RecordTypeError, match="too large for a float of 32 bits"):
        schema.deserialize(b'{"a": 1e300}')
