"""Operators on columns: map_batches, expressions, projection of tuples, and what does not fit."""

from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from headrace.core.errors import UserCodeError
from headrace.core.types.rows import Row
from headrace.core.types.type_info import Types
from headrace.functions.record import MapBatchesFunction
from headrace.functions.runtime_context import RuntimeContext
from headrace.functions.specs.operator_specs import (
    CacheSpec,
    FilterExpressionSpec,
    MapBatchesSpec,
    ProjectSpec,
    SelectExpressionsSpec,
)
from headrace.operators.columns import batch_functions
from headrace.testing.operator_harness import (
    OperatorHarness,
    Rows,
)
from headrace.testing.operator_ways import run_all_ways

ROW = Types.ROW_NAMED(["a", "b"], [Types.INT(), Types.STRING()])
ROWS = Rows([Row(a=1, b="x"), Row(a=None, b="y"), Row(a=3, b=None)], [1, 2, 3])


def _harness(spec: Any, output_type: Any = ROW) -> OperatorHarness:
    return OperatorHarness(
        spec, input_types=[ROW], output_type=output_type, operator_name="Columns"
    )


def test_map_batches_keeps_timestamps_while_the_row_count_stays() -> None:
    def double(batch: pa.RecordBatch) -> pa.RecordBatch:
        return pa.record_batch({"b": batch.column("b"), "a": pc.multiply(batch.column("a"), 2)})

    harness = run_all_ways(lambda: _harness(MapBatchesSpec(double)), [ROWS], finishes=False)
    assert harness.output.timed_rows == [
        (Row(a=2, b="x"), 1),
        (Row(a=None, b="y"), 2),
        (Row(a=6, b=None), 3),
    ]


def test_map_batches_may_change_the_row_count_and_then_gives_up_event_time() -> None:
    harness = _harness(MapBatchesSpec(lambda batch: batch.slice(1)))
    harness.perform(ROWS)
    assert harness.output.timed_rows == [(Row(a=None, b="y"), None), (Row(a=3, b=None), None)]
    nothing = _harness(MapBatchesSpec(lambda batch: batch.slice(3)))
    nothing.perform(ROWS)
    assert nothing.output.batches == []


class Times(MapBatchesFunction):
    """Multiplies by the parallelism, and fails as it is opened where that is one."""

    calls: ClassVar[list[str]] = []

    def open(self, runtime_context: RuntimeContext) -> None:
        self.calls.append("open")
        self.factor = runtime_context.get_number_of_parallel_subtasks()
        if self.factor == 1:
            raise ValueError("nothing to multiply by")

    def map_batches(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        self.calls.append("map_batches")
        a = pc.multiply(batch.column("a"), self.factor)
        return pa.record_batch({"a": a, "b": batch.column("b")})

    def close(self) -> None:
        self.calls.append("close")
        raise OSError("the model does not end")


def test_a_function_of_batches_is_opened_and_closed_once() -> None:
    Times.calls.clear()
    harness = OperatorHarness(
        MapBatchesSpec(Times()),
        input_types=[ROW],
        output_type=ROW,
        operator_name="Columns",
        parallelism=3,
    )
    harness.perform(ROWS)
    assert [row.a for row, _ in harness.output.timed_rows] == [3, None, 9]
    with pytest.raises(UserCodeError, match=r"(?s)the model does not end.*'Columns'"):
        harness.close()
    harness.close()
    assert Times.calls == ["open", "map_batches", "close"]


def test_a_function_of_batches_that_cannot_be_opened_fails_its_operator_by_name() -> None:
    with pytest.raises(UserCodeError, match=r"(?s)nothing to multiply by.*'Columns'"):
        _harness(MapBatchesSpec(Times()))


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (
            lambda batch: batch.to_pydict(),
            r"map_batches must return a pyarrow.RecordBatch, not dict",
        ),
        (lambda batch: batch.select(["a"]), r"there is no column 'b'"),
        (
            lambda batch: pa.record_batch({"a": ["one"], "b": ["x"]}),
            r"column 'a' is string and cannot become int32",
        ),
        (lambda batch: batch.column("c"), r"KeyError"),
    ],
)
def test_a_wrong_result_of_map_batches_is_explained(function: Any, text: str) -> None:
    with pytest.raises(UserCodeError, match=rf"(?s){text}.*'Columns'"):
        _harness(MapBatchesSpec(function)).perform(ROWS)


def test_an_expression_keeps_rows_for_which_it_is_true_and_not_null() -> None:
    harness = run_all_ways(
        lambda: _harness(FilterExpressionSpec(pc.field("a") >= 3)), [ROWS], finishes=False
    )
    assert harness.output.timed_rows == [(Row(a=3, b=None), 3)]


def test_expressions_make_columns() -> None:
    output_type = Types.ROW_NAMED(["sum", "text"], [Types.LONG(), Types.STRING()])
    spec = SelectExpressionsSpec((("sum", pc.field("a") + 10), ("text", pc.field("b"))))
    harness = run_all_ways(lambda: _harness(spec, output_type), [ROWS], finishes=False)
    assert harness.output.timed_rows == [
        (Row(sum=11, text="x"), 1),
        (Row(sum=None, text="y"), 2),
        (Row(sum=13, text=None), 3),
    ]


def test_columns_that_are_taken_as_they_are_need_no_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(columns: pa.RecordBatch, expressions: Any) -> list[pa.Array]:
        raise AssertionError("there is nothing to compute")

    monkeypatch.setattr(batch_functions, "evaluate", refuse)
    output_type = Types.ROW_NAMED(
        ["text", "wide", "a"], [Types.STRING(), Types.LONG(), Types.INT()]
    )
    spec = SelectExpressionsSpec(
        (("text", pc.field("b")), ("wide", pc.field("a")), ("a", pc.field("a")))
    )
    harness = run_all_ways(lambda: _harness(spec, output_type), [ROWS], finishes=False)
    assert harness.output.timed_rows == [
        (Row(text="x", wide=1, a=1), 1),
        (Row(text="y", wide=None, a=None), 2),
        (Row(text=None, wide=3, a=3), 3),
    ]


def test_an_expression_over_no_such_column_fails_with_the_operator() -> None:
    with pytest.raises(UserCodeError, match=r"(?s)nothing.*in operator 'Columns'"):
        _harness(FilterExpressionSpec(pc.field("nothing") > 1)).perform(ROWS)


def test_batches_larger_than_arrows_chunks_keep_their_order() -> None:
    harness = OperatorHarness(
        # more than one of the 32,768-row chunks in which Acero works
        FilterExpressionSpec(pc.field("value") > 10),
        input_types=[Types.LONG()],
        output_type=Types.LONG(),
    )
    harness.perform(Rows(list(range(100_000))))
    rows = harness.output.rows
    assert rows == sorted(rows) and rows[0] == 11 and len(rows) == 99_989


def test_projection_picks_tuple_fields_by_position() -> None:
    input_type = Types.TUPLE([Types.INT(), Types.STRING(), Types.DOUBLE()])
    output_type = Types.TUPLE([Types.DOUBLE(), Types.INT()])
    harness = run_all_ways(
        lambda: OperatorHarness(
            ProjectSpec((2, 0)), input_types=[input_type], output_type=output_type
        ),
        [Rows([(1, "x", 0.5), (2, None, None)], [7, 8])],
        finishes=False,
    )
    assert harness.output.timed_rows == [((0.5, 1), 7), ((None, 2), 8)]


def test_what_stands_behind_a_cached_stream_gives_on_records_and_timestamps() -> None:
    harness = run_all_ways(
        lambda: OperatorHarness(
            CacheSpec(), input_types=[Types.STRING()], output_type=Types.STRING()
        ),
        [Rows(["a", None, "b"], [1, 2, 3])],
        finishes=False,
    )
    assert harness.output.timed_rows == [("a", 1), (None, 2), ("b", 3)]
