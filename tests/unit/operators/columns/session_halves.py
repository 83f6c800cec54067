"""The two halves of an aggregate of sessions, on operator harnesses."""

from typing import Any

from headrace.core.types.arrow_types import data_schema, type_info_from_schema
from headrace.core.types.rows import Row
from headrace.core.types.type_info import TimestampTypeInfo, Types
from headrace.functions.specs.columnar_specs import (
    LocalSessionAggregateSpec,
    SessionAggregateSpec,
    SessionAggregation,
)
from headrace.functions.specs.operator_specs import ColumnAggregate
from headrace.testing.operator_harness import HarnessStep, OperatorHarness, Rows, WatermarkAt

GAP = 10
ROW = Types.ROW_NAMED(["key", "n"], [Types.STRING(), Types.LONG()])
UTC = TimestampTypeInfo("UTC")
AGGREGATES = (
    ColumnAggregate("count", None, "rows"),
    ColumnAggregate("sum", "n", "sum"),
    ColumnAggregate("mean", "n", "mean"),
    ColumnAggregate("max", "n", "most"),
)
RESULT = Types.ROW_NAMED(
    ["key", "window_start", "window_end", "rows", "sum", "mean", "most"],
    [Types.STRING(), UTC, UTC, Types.LONG(), Types.LONG(), Types.DOUBLE(), Types.LONG()],
)
Drawn = tuple[str, int | None, int]
AGGREGATION = SessionAggregation(GAP, ("key",), AGGREGATES)
PARTIAL: Any = type_info_from_schema(AGGREGATION.partial_schema(data_schema(ROW)))


def local() -> OperatorHarness:
    return OperatorHarness(
        LocalSessionAggregateSpec(AGGREGATION), input_types=[ROW], output_type=PARTIAL
    )


def sessions() -> OperatorHarness:
    return OperatorHarness(
        SessionAggregateSpec(AGGREGATION),
        input_types=[PARTIAL],
        output_type=RESULT,
        keys=[lambda row: row["key"]],
        key_type=Types.STRING(),
    )


def second_steps(batches: list[list[Drawn] | int]) -> list[HarnessStep]:
    """What the first half makes of the batches, as steps of the second."""
    harness = local()
    for step in steps_of(batches):
        harness.perform(step)
    harness.finish()
    return [
        Rows([element[1]]) if element[0] == "row" else WatermarkAt(element[1])
        for element in harness.output.main
    ]


def steps_of(batches: list[list[Drawn] | int]) -> list[HarnessStep]:
    steps: list[HarnessStep] = []
    watermark = -(2**62)
    for batch in batches:
        if isinstance(batch, list):
            rows = [Row(key=key, n=n) for key, n, _ in batch]
            steps.append(Rows(rows, [time for _, _, time in batch]))
        elif batch > watermark:
            watermark = batch
            steps.append(WatermarkAt(batch))
    return steps
