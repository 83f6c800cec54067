"""Row groups that a filter behind the source cannot keep a row of: they are not read, and nothing else changes."""

import datetime
import operator
import os
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headrace import DataStream, StreamExecutionEnvironment, WatermarkStrategy, col
from headrace.api.columns.expressions import Expression
from headrace.connectors.files.formats.columnar_formats import ParquetColumnarRowInputFormat
from headrace.connectors.files.formats.splits import FileSplit
from headrace.connectors.files.source.file_source import FileSource
from headrace.core.record_batch import BatchType
from headrace.core.types.type_info import Types
from headrace.functions.column_conditions import Comparison, Or, ValueRange
from headrace.functions.specs.operator_specs import SourceSpec

GROUP_ROWS = 4
IDS = [0, 1, None, 3, 10, 11, 12, 13, 20, 20, 20, 20, None, None, None, None, 40, 41, 42, 43]
NAMES = [*"aabbccddee", None, *"efghijklm"]
SHARES = [float("nan"), 3.0, 3.0, 3.0, *(number / 2 for number in range(16))]
ROWS = Types.ROW_NAMED(["id", "name", "share"], [Types.LONG(), Types.STRING(), Types.DOUBLE()])
FORMAT = ParquetColumnarRowInputFormat(ROWS, batch_size=3)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = str(tmp_path_factory.mktemp("groups") / "rows.parquet")
    table = pa.table({"id": IDS, "name": NAMES, "share": SHARES})
    pq.write_table(table, path, row_group_size=GROUP_ROWS)
    return path


def split_of(path: str) -> FileSplit:
    status = os.stat(path)
    return FileSplit("/", path, 0, status.st_size, status.st_size, status.st_mtime_ns)


def read(split: FileSplit, condition: Any, row_type: Any = ROWS) -> list[tuple[Any, int]]:
    """Rows that are read, each with the position behind its batch."""
    reader_format = ParquetColumnarRowInputFormat(row_type, batch_size=3)
    if condition is not None:
        reader_format = reader_format.with_condition(condition)
    records = reader_format.open(split, BatchType(row_type))
    found: list[tuple[Any, int]] = []
    while (batch := records.next_batch()) is not None:
        found += [(row, records.position or 0) for row in batch.columns().to_pylist()]
    records.close()
    return found


def ids(path: str, condition: Expression) -> list[int | None]:
    assert condition.implied is not None
    return [row["id"] for row, _ in read(split_of(path), condition.implied)]


@pytest.mark.parametrize(
    ("condition", "groups"),
    [
        (col("id") > 20, [4]),
        (col("id") >= 20, [2, 4]),
        (col("id") == 12, [1]),
        (col("id") == 15, []),
        (col("id") < 4, [0]),
        (col("id").between(11, 20), [1, 2]),
        (col("id").is_in([3, 43, None]), [0, 4]),
        (col("id").is_in([None]), []),
        (col("name").is_in(["f", "g"]), [3]),
        ((col("id") == 3) | (col("name") == "m"), [0, 4]),
        ((col("id") < 15) & (col("name") > "b"), [1]),
        # What is not known of a part does not stop the other from being used.
        ((col("id") % 2 == 0) & (col("id") > 20), [4]),
        (col("share") > 3.4, [2, 3, 4]),
        (col("share") > 3, [2, 3, 4]),
    ],
    ids=repr,
)
def test_only_row_groups_that_may_hold_such_rows_are_read(
    file: str, condition: Expression, groups: list[int]
) -> None:
    kept = [IDS[GROUP_ROWS * group : GROUP_ROWS * (group + 1)] for group in groups]
    assert ids(file, condition) == [one for group in kept for one in group]


@pytest.mark.parametrize(
    "condition",
    [
        ~(col("share") <= 3),
        col("share") != 3,
        col("id") != 20,
        (col("id") == 3) | (col("id") % 2 == 0),
        col("id") == None,  # noqa: E711
        col("id").is_null(),
        col("id") > col("share"),
        (col("id") % 2).is_in([1]),
        # Of columns of such types no smallest and largest value is known.
        col("day") > datetime.date(2013, 1, 1),
        col("day").is_in([datetime.date(2013, 1, 1)]),
    ],
    ids=str,
)
def test_nothing_is_concluded_from_conditions_that_smallest_and_largest_values_cannot_refute(
    condition: Expression,
) -> None:
    assert condition.implied is None


comparisons = st.builds(
    lambda compare, value: compare(col("id"), value),
    st.sampled_from([operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge]),
    st.integers(-1, 45),
)
conditions = st.recursive(
    st.one_of(
        comparisons,
        st.lists(st.one_of(st.none(), st.integers(-1, 45)), max_size=3).map(col("id").is_in),
        st.sampled_from("adhm").map(lambda text: col("name") >= text),
        st.sampled_from([0.5, 3.0, 9.0]).map(lambda share: col("share") <= share),
        st.just(col("id").is_null()),
    ),
    lambda inner: st.one_of(
        st.builds(operator.and_, inner, inner),
        st.builds(operator.or_, inner, inner),
        inner.map(operator.invert),
    ),
    max_leaves=4,
)


@given(conditions)
@example(~(col("share") <= 3.0))
@example(col("share").is_in([float("nan")]))
def test_what_a_filter_keeps_is_the_same_whatever_was_left_out(
    file: str, condition: Expression
) -> None:
    everything = pa.table({"id": IDS, "name": NAMES, "share": SHARES})
    rows = [row for row, _ in read(split_of(file), condition.implied)]
    found = pa.Table.from_pylist(rows, everything.schema).filter(condition.to_arrow())
    assert repr(found.to_pylist()) == repr(everything.filter(condition.to_arrow()).to_pylist())


@pytest.mark.parametrize("condition", [col("id").is_in([3, 20]), col("id") > 5, col("id") < 4])
def test_reading_goes_on_from_each_position_with_the_rows_behind_it(
    file: str, condition: Expression
) -> None:
    everything = read(split_of(file), condition.implied)
    for _, position in everything:
        rest = read(split_of(file).at(position), condition.implied)
        behind = [(row, at) for row, at in everything if at > position]
        assert [repr(row) for row, _ in rest] == [repr(row) for row, _ in behind]


def test_a_position_means_the_same_without_the_condition(file: str) -> None:
    (_, position), *_ = [one for one in read(split_of(file), (col("id") > 15).implied)]
    rest = [row["id"] for row, _ in read(split_of(file).at(position), None)]
    assert rest == IDS[position:]
    assert position == 2 * GROUP_ROWS + 3


def test_columns_that_are_cast_prune_nothing(file: str) -> None:
    as_text = Types.ROW_NAMED(["id"], [Types.STRING()])
    found = read(split_of(file), (col("id") == "12").implied, as_text)
    assert len(found) == len(IDS)


def test_numbers_that_a_cast_may_round_refute_nothing() -> None:
    integers = {"x": ValueRange(2**53 + 1, 2**53 + 1)}
    assert Comparison("x", "==", 2.0**53).may_hold(integers.get)
    assert not Comparison("x", "==", 2**53).may_hold(integers.get)
    floats = {"x": ValueRange(2.0**24, 2.0**24)}
    assert Comparison("x", "==", 2**24 + 1).may_hold(floats.get)
    assert not Comparison("x", "==", 7).may_hold(floats.get)
    assert Comparison("x", "<", "text").may_hold(floats.get)


def test_arrow_reads_row_groups_with_nulls_and_leaves_out_rows_with_nan(file: str) -> None:
    """The reason why row groups are not pruned by pyarrow.dataset: once this fails, ask again whether they can be."""
    import pyarrow.dataset as pads

    (fragment,) = pads.dataset(file).get_fragments()

    def kept_by_arrow(condition: Expression) -> list[int]:
        kept = fragment.subset(condition.to_arrow())
        return [group.id for group in kept.row_groups]

    condition = col("id") > 20
    assert 0 in kept_by_arrow(condition)
    assert IDS[0] not in ids(file, condition)
    is_kept = col("share") != 3
    assert pa.table({"share": SHARES[:GROUP_ROWS]}).filter(is_kept.to_arrow()).num_rows == 1
    assert 0 not in kept_by_arrow(is_kept)


def rows_of(path: str) -> DataStream:
    env = StreamExecutionEnvironment.get_execution_environment()
    source = FileSource.for_bulk_file_format(FORMAT, path).build()
    return env.from_source(source, WatermarkStrategy.no_watermarks(), "rows")


def condition_told(stream: DataStream) -> Any:
    graph = stream.get_execution_environment().get_stream_graph("told")
    (spec,) = [node.spec for node in graph.nodes if isinstance(node.spec, SourceSpec)]
    return spec.source._format.condition


def test_a_source_is_told_of_the_filter_behind_it(file: str) -> None:
    rows = rows_of(file)
    rows.filter(col("id") > 20).print()
    assert condition_told(rows) == Comparison("id", ">", 20)


def test_a_source_that_others_read_too_is_told_only_what_all_of_them_drop(file: str) -> None:
    rows = rows_of(file)
    rows.filter(col("id") > 20).print()
    rows.filter(col("id") < 5).print()
    assert condition_told(rows) == Or((Comparison("id", ">", 20), Comparison("id", "<", 5)))
    rows.print()
    assert condition_told(rows) is None


def test_functions_and_filters_further_on_tell_a_source_nothing(file: str) -> None:
    rows = rows_of(file)
    rows.filter(lambda row: row["id"] > 20).print()
    assert condition_told(rows) is None
    later = rows_of(file)
    later.map(lambda row: row, ROWS).filter(col("id") > 20).print()
    assert condition_told(later) is None
