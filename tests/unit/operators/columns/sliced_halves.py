"""The two halves of an aggregate of sliced windows, and the plain operator, on operator harnesses."""

from typing import Any

from headrace.core.types.arrow_types import data_schema, type_info_from_schema
from headrace.core.types.rows import Row
from headrace.core.types.type_info import TimestampTypeInfo, Types
from headrace.functions.specs.columnar_specs import (
    EventTimeWindows,
    LocalAggregateSpec,
    SlicedAggregateSpec,
    SlicedAggregation,
)
from headrace.functions.specs.operator_specs import ColumnAggregate, WindowAggregateSpec
from headrace.functions.windowing.assigners import SlidingEventTimeWindows, TumblingEventTimeWindows
from headrace.testing.operator_harness import HarnessStep, OperatorHarness, Rows, WatermarkAt

ROW = Types.ROW_NAMED(["key", "n"], [Types.STRING(), Types.LONG()])
UTC = TimestampTypeInfo("UTC")
AGGREGATES = (
    ColumnAggregate("count", None, "rows"),
    ColumnAggregate("count", "n", "values"),
    ColumnAggregate("sum", "n", "sum"),
    ColumnAggregate("mean", "n", "mean"),
    ColumnAggregate("min", "n", "least"),
    ColumnAggregate("max", "n", "most"),
)
RESULT = Types.ROW_NAMED(
    ["key", "window_start", "window_end", *(one.output_name for one in AGGREGATES)],
    [Types.STRING(), UTC, UTC, *[Types.LONG()] * 3, Types.DOUBLE(), *[Types.LONG()] * 2],
)
KINDS = {
    "tumbling": (10, 10, 0),
    "tumbling with an offset": (10, 10, 3),
    "sliding": (10, 5, 0),
    "sliding, of slices shorter than the slide": (9, 6, 2),
}


def aggregation(kind: str) -> SlicedAggregation:
    return SlicedAggregation(EventTimeWindows(*KINDS[kind]), ("key",), AGGREGATES)


def partial_type(kind: str) -> Any:
    return type_info_from_schema(aggregation(kind).partial_schema(data_schema(ROW)))


def local(kind: str) -> OperatorHarness:
    return OperatorHarness(
        LocalAggregateSpec(aggregation(kind)), input_types=[ROW], output_type=partial_type(kind)
    )


def sliced(kind: str) -> OperatorHarness:
    return OperatorHarness(
        SlicedAggregateSpec(aggregation(kind)),
        input_types=[partial_type(kind)],
        output_type=RESULT,
        keys=[lambda row: row["key"]],
        key_type=Types.STRING(),
    )


def plain(kind: str) -> OperatorHarness:
    size, slide, offset = KINDS[kind]
    assigner: Any = (
        TumblingEventTimeWindows(size, offset)
        if size == slide
        else SlidingEventTimeWindows(size, slide, offset)
    )
    return OperatorHarness(
        WindowAggregateSpec(assigner, 0, None, AGGREGATES, ("key",)),
        input_types=[ROW],
        output_type=RESULT,
        keys=[lambda row: row["key"]],
        key_type=Types.STRING(),
    )


def partials_of(kind: str, steps: list[HarnessStep]) -> list[HarnessStep]:
    """What the first half makes of the steps, as steps of the second."""
    harness = local(kind)
    for step in steps:
        harness.perform(step)
    harness.finish()
    return steps_from(harness)


def steps_from(harness: OperatorHarness) -> list[HarnessStep]:
    """What it has put out, as steps of the next operator."""
    made: list[HarnessStep] = []
    for element in harness.output.main:
        if element[0] == "row":
            made.append(Rows([element[1]]))
        else:
            made.append(WatermarkAt(element[1]))
    return made


def records(*rows: tuple[str, int | None, int]) -> Rows:
    return Rows([Row(key=key, n=n) for key, n, _ in rows], [time for _, _, time in rows])
