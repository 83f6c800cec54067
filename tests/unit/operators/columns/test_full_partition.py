"""Full partitions: functions of all records, sorts and folds; restored, rescaled, spilled, in BATCH mode's order."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.checkpoint.handles import OperatorSubtaskState
from headrace.core.elements import MAX_WATERMARK
from headrace.core.errors import UserCodeError
from headrace.core.key_hash import hash_keys
from headrace.core.operator_spec import OperatorSpec
from headrace.core.types.rows import Row, RowKind
from headrace.core.types.type_info import TypeInformation, Types
from headrace.functions.process import OutputTag
from headrace.functions.record import AggregateFunction, MapPartitionFunction
from headrace.functions.specs.columnar_specs import (
    FoldPartitionSpec,
    MapPartitionSpec,
    PartitionForm,
    SortPartitionSpec,
)
from headrace.operators.columns import partition_rows
from headrace.state import operator_state_handler
from headrace.testing.operator_harness import HarnessStep, OperatorHarness, Rows, WatermarkAt
from headrace.testing.operator_ways import run_all_cuts, run_all_ways

ROW = Types.ROW_NAMED(["key", "n"], [Types.STRING(), Types.LONG()])
# Texts with one hash, as in Java.
ONE, OTHER = "Aa", "BB"
Pair = tuple[str, int | None]


def rows(*pairs: Pair, times: Sequence[int] | None = None) -> Rows:
    return Rows([Row(key=key, n=n) for key, n in pairs], times)


def harness_of(
    spec: OperatorSpec,
    output_type: TypeInformation = ROW,
    *,
    is_keyed: bool = True,
    key_type: TypeInformation | None = None,
) -> OperatorHarness:
    return OperatorHarness(
        spec,
        input_types=[ROW],
        output_type=output_type,
        keys=[lambda row: row["key"]] if is_keyed else [],
        key_type=key_type or Types.STRING(),
    )


def finished(harness: OperatorHarness) -> list[Any]:
    harness.finish()
    return harness.output.rows


def listed(values: Iterator[Row]) -> Iterable[tuple[str, list[int]]]:
    all_values = list(values)
    return [(all_values[0].key, [value.n for value in all_values])]


def listing() -> OperatorHarness:
    return harness_of(MapPartitionSpec(listed), Types.PICKLED_BYTE_ARRAY())


STEPS: list[HarnessStep] = [
    rows((ONE, 1), ("x", 2), times=[5, 6]),
    rows((OTHER, 3), (ONE, 4), ("y", 5)),
    rows(("x", 6), (ONE, 7), times=[1, 2]),
]


def test_a_function_gets_all_records_of_its_key_in_the_order_in_which_they_came() -> None:
    assert len(set(hash_keys([ONE, OTHER]).tolist())) == 1
    harness = run_all_ways(listing, STEPS)
    assert sorted(harness.output.timed_rows) == [
        (("Aa", [1, 4, 7]), None),
        (("BB", [3]), None),
        (("x", [2, 6]), None),
        (("y", [5]), None),
    ]


@pytest.mark.parametrize("key_type", [Types.PICKLED_BYTE_ARRAY(), Types.ROW([Types.STRING()])])
def test_keys_of_any_type_are_told_apart(key_type: TypeInformation) -> None:
    def create() -> OperatorHarness:
        def key_of(row: Row) -> Any:
            return row["key"] if key_type == Types.PICKLED_BYTE_ARRAY() else Row(row["key"])

        return OperatorHarness(
            MapPartitionSpec(listed), input_types=[ROW], keys=[key_of], key_type=key_type
        )

    harness = run_all_ways(create, STEPS)
    assert sorted(harness.output.rows) == [
        ("Aa", [1, 4, 7]),
        ("BB", [3]),
        ("x", [2, 6]),
        ("y", [5]),
    ]


@given(st.lists(st.tuples(st.sampled_from([ONE, OTHER, "x", "y", "z"]), st.integers(0, 9))))
def test_keys_that_end_one_after_another_give_what_they_give_at_the_end(pairs: list[Pair]) -> None:
    expected: dict[str, list[int | None]] = {}
    for key, n in pairs:
        expected.setdefault(key, []).append(n)
    at_the_end, by_key = listing(), listing()
    by_hash = sorted(pairs, key=lambda pair: int(hash_keys([pair[0]])[0]))
    for start in range(0, len(pairs), 3):
        at_the_end.perform(rows(*pairs[start : start + 3]))
    ended: int | None = None
    for pair in by_hash:
        hash_ = int(hash_keys([pair[0]])[0])
        if ended not in (None, hash_):
            by_key.operator.end_keys(by_key.output)
        ended = hash_
        by_key.perform(rows(pair))
    assert sorted(finished(at_the_end)) == sorted(finished(by_key)) == sorted(expected.items())


def test_keys_that_ended_are_forgotten() -> None:
    harness = listing()
    harness.perform(rows(("x", 1)))
    harness.operator.end_keys(harness.output)
    assert harness.output.rows == [("x", [1])]
    assert not harness.snapshot().chunks
    assert finished(harness) == [("x", [1])]


class Chosen(MapPartitionFunction):
    """Yields to a side output too, and keeps whether it is open."""

    def open(self, runtime_context: Any) -> None:
        self.subtask_index = runtime_context.get_index_of_this_subtask()

    def map_partition(self, values: Iterator[Row]) -> Iterator[Any]:
        for value in values:
            yield value if value.n > 2 else (OutputTag("small", ROW), value)


def test_functions_are_opened_and_write_to_side_outputs() -> None:
    def create() -> OperatorHarness:
        return OperatorHarness(
            MapPartitionSpec(Chosen()),
            input_types=[ROW],
            output_type=ROW,
            side_types={"small": ROW},
            keys=[lambda row: row["key"]],
            key_type=Types.STRING(),
        )

    harness = run_all_ways(create, STEPS)
    assert sorted(row.n for row in harness.output.rows) == [3, 4, 5, 6, 7]
    assert sorted(row.n for row in harness.output.side_rows("small")) == [1, 2]


def test_kinds_of_rows_are_kept() -> None:
    def kinds(values: Iterator[Row]) -> list[str]:
        return [f"{value.n} {value.get_row_kind().name}" for value in values]

    harness = harness_of(MapPartitionSpec(kinds), Types.STRING())
    deleted = Row(key="x", n=2)
    deleted.set_row_kind(RowKind.DELETE)
    harness.perform(rows(("x", 1)))
    harness.perform(Rows([deleted], None))
    harness.restart(harness.snapshot())
    assert finished(harness) == ["1 INSERT", "2 DELETE"]


def with_total(table: pa.Table) -> pa.Table:
    assert table.schema.names == ["key", "n"]
    return pa.table({"n": [sum(table["n"].to_pylist())], "key": [table["key"][0].as_py()]})


def summed(frame: Any) -> Any:
    return frame.head(1).assign(n=frame["n"].sum())


@pytest.mark.parametrize(
    ("function", "form"), [(with_total, PartitionForm.ARROW), (summed, PartitionForm.PANDAS)]
)
def test_functions_of_columns_get_those_of_a_key(
    function: Callable[[Any], Any], form: PartitionForm
) -> None:
    harness = run_all_ways(
        lambda: harness_of(MapPartitionSpec(function, form)), STEPS, finishes=True
    )
    assert sorted((row.key, row.n) for row in harness.output.rows) == [
        ("Aa", 12),
        ("BB", 3),
        ("x", 8),
        ("y", 5),
    ]


@pytest.mark.parametrize(
    ("function", "form", "text"),
    [
        (lambda table: 3, PartitionForm.ARROW, "map_arrow must return a pyarrow.Table"),
        (lambda table: table.select(["n"]), PartitionForm.ARROW, "there is no column 'key'"),
        (lambda frame: 3, PartitionForm.PANDAS, "map_pandas must return a pandas.DataFrame"),
        (lambda frame: frame[["n"]], PartitionForm.PANDAS, "there is no column 'key'"),
        (
            lambda frame: frame.assign(n="many"),
            PartitionForm.PANDAS,
            "column 'n' cannot become int64",
        ),
        (lambda values: 3, PartitionForm.RECORDS, "map_partition must return an iterable"),
        (lambda values: 1 // 0, PartitionForm.RECORDS, "ZeroDivisionError"),
    ],
)
def test_errors_say_what_the_function_should_return(
    function: Any, form: PartitionForm, text: str
) -> None:
    harness = harness_of(MapPartitionSpec(function, form))
    harness.perform(rows(("x", 1)))
    with pytest.raises(UserCodeError, match=text):
        harness.finish()


def test_columns_of_numbers_without_a_value_come_back_from_pandas_as_nulls() -> None:
    harness = harness_of(MapPartitionSpec(lambda frame: frame, PartitionForm.PANDAS))
    harness.perform(rows(("x", 1), ("x", None)))
    assert finished(harness) == [Row(key="x", n=1), Row(key="x", n=None)]


def test_a_large_key_lies_in_a_file_until_it_is_read(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(operator_state_handler, "row_buffer_bytes", lambda _settings: 4_096)
    mapped = list[int]()

    def noted(block: pa.RecordBatch, directory: str | None) -> pa.RecordBatch:
        mapped.append(block.num_rows)
        stored = real(block, str(tmp_path))
        assert not list(tmp_path.iterdir()), "nobody sees the file"
        return stored

    real = partition_rows.mapped
    monkeypatch.setattr(partition_rows, "mapped", noted)
    spec = MapPartitionSpec(lambda values: [sum(1 for _ in values)])
    for end_keys in (True, False):
        mapped.clear()
        harness = harness_of(spec, Types.PICKLED_BYTE_ARRAY())
        for start in range(0, 1_000, 100):
            harness.perform(rows(*((ONE, n) for n in range(start, start + 100)), (OTHER, start)))
        harness.restart(harness.snapshot())
        assert mapped
        if end_keys:
            harness.operator.end_keys(harness.output)
        assert finished(harness) == [1_000, 10]


def sorting(
    column: str | None, selector: Any = None, *, is_descending: bool = False
) -> OperatorHarness:
    return harness_of(SortPartitionSpec(column, selector, is_descending))


UNSORTED: list[HarnessStep] = [
    rows(("x", 3), ("y", 1), ("x", None)),
    rows(("x", 1), ("y", 2), ("x", 3)),
]


@pytest.mark.parametrize(
    ("is_descending", "of_x", "of_y"),
    [(False, [1, 3, 3, None], [1, 2]), (True, [3, 3, 1, None], [2, 1])],
)
def test_records_of_a_key_are_sorted_by_a_field(
    is_descending: bool, of_x: list[int | None], of_y: list[int]
) -> None:
    harness = run_all_ways(
        lambda: sorting("n", is_descending=is_descending), UNSORTED, finishes=True
    )
    made = harness.output.rows
    assert [row.n for row in made if row.key == "x"] == of_x
    assert [row.n for row in made if row.key == "y"] == of_y


@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 3)), max_size=40),
    st.booleans(),
    st.booleans(),
)
def test_sorts_are_stable_whatever_they_go_by(
    pairs: list[Pair], is_descending: bool, is_by_field: bool
) -> None:
    """Without keys: of equal fields the order in which records came is kept, through files too."""
    selector = None if is_by_field else (lambda row: row["key"])
    spec = SortPartitionSpec("key" if is_by_field else None, selector, is_descending)
    with patch.object(operator_state_handler, "row_buffer_bytes", lambda _settings: 64):
        harness = harness_of(spec, is_keyed=False)
    for start in range(0, len(pairs), 7):
        harness.perform(rows(*pairs[start : start + 7]))
    made = [(row.key, row.n) for row in finished(harness)]
    assert made == sorted(pairs, key=lambda pair: pair[0], reverse=is_descending)


def test_values_without_an_order_are_the_functions_error() -> None:
    harness = sorting(None, lambda row: row["n"])
    harness.perform(rows(("x", 1), ("x", None)))
    with pytest.raises(UserCodeError, match="not supported between"):
        harness.finish()


class Mean(AggregateFunction):
    """The mean of the numbers, of a list [count, sum] that it changes in place."""

    def create_accumulator(self) -> list[int]:
        return [0, 0]

    def add(self, value: Row, accumulator: list[int]) -> list[int]:
        accumulator[0] += 1
        accumulator[1] += value["n"]
        return accumulator

    def get_result(self, accumulator: list[int]) -> float:
        return accumulator[1] / accumulator[0]

    def merge(self, acc_a: list[int], acc_b: list[int]) -> list[int]:
        return [acc_a[0] + acc_b[0], acc_a[1] + acc_b[1]]


def added(left: Row, right: Row) -> Row:
    left["n"] += right["n"]
    return left


def folds(kind: str) -> OperatorHarness:
    if kind == "reduce":
        return harness_of(FoldPartitionSpec(added, ROW), is_keyed=False)
    spec = FoldPartitionSpec(Mean(), Types.PICKLED_BYTE_ARRAY())
    return harness_of(spec, Types.DOUBLE(), is_keyed=False)


@pytest.mark.parametrize(("kind", "result"), [("reduce", Row(key="Aa", n=28)), ("aggregate", 4.0)])
def test_all_records_of_a_subtask_are_folded(kind: str, result: Any) -> None:
    harness = run_all_cuts(lambda: folds(kind), STEPS)
    assert harness.output.timed_rows == [(result, None)]
    harness = folds(kind)
    for step in STEPS:
        harness.perform(step)
        harness.restart(harness.snapshot())
    assert finished(harness) == [result]


@pytest.mark.parametrize("create", [listing, lambda: folds("reduce")])
def test_results_come_before_the_last_watermark(create: Callable[[], OperatorHarness]) -> None:
    harness = create()
    for step in (STEPS[0], WatermarkAt(8), WatermarkAt(MAX_WATERMARK)):
        harness.perform(step)
    assert harness.output.watermarks == [8], "an idle input may wake up"
    harness.perform(STEPS[1])
    harness.finish()
    kinds = [element[0] for element in harness.output.main]
    assert kinds[0] == "watermark" == kinds[-1] and set(kinds[1:-1]) == {"row"}
    assert harness.output.watermarks == [8, MAX_WATERMARK]


def test_a_subtask_without_records_gives_no_fold() -> None:
    assert finished(folds("reduce")) == [] == finished(folds("aggregate"))


@pytest.mark.parametrize("kind", ["reduce", "aggregate"])
def test_folds_that_meet_at_another_parallelism_become_one(kind: str) -> None:
    first, second, whole = folds(kind), folds(kind), folds(kind)
    first.perform(STEPS[0])
    second.perform(STEPS[1])
    for step in STEPS:
        whole.perform(step)
    chunks = first.snapshot().chunks + second.snapshot().chunks
    first.restart(OperatorSubtaskState(tuple(chunks)))
    first.perform(STEPS[2])
    assert finished(first) == finished(whole)


def test_rows_without_keys_are_shared_out_when_they_are_restored() -> None:
    spec = MapPartitionSpec(lambda values: [sorted(value.n for value in values)])
    first, second = (harness_of(spec, Types.PICKLED_BYTE_ARRAY(), is_keyed=False) for _ in "ab")
    first.perform(STEPS[0])
    second.perform(STEPS[1])
    second.perform(STEPS[2])
    chunks = first.snapshot().chunks + second.snapshot().chunks
    assert [chunk.row_count for chunk in chunks] == [1, 2], "an item for each batch"
    first.restart(OperatorSubtaskState(tuple(chunks)))
    assert finished(first) == [[1, 2, 3, 4, 5, 6, 7]]


def test_a_fold_of_another_type_than_its_state_is_the_functions_error() -> None:
    harness = harness_of(FoldPartitionSpec(lambda a, b: "no row", ROW), is_keyed=False)
    harness.perform(rows(("x", 1), ("x", 2)))
    with pytest.raises(UserCodeError, match="no row"):
        harness.snapshot()


def test_an_order_of_places_reaches_into_several_blocks() -> None:
    blocks = [pa.record_batch({"n": list(range(start, start + 3))}) for start in (0, 3, 6)]
    order = np.array([8, 0, 4, 4, 1, 7])
    made = [block.column("n").to_pylist() for block in partition_rows.ordered_pieces(blocks, order)]
    assert made == [[8, 0, 4, 4, 1, 7]]
