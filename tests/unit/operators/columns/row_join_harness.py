"""Joins of rows by columns, on an operator harness."""

from typing import Any

from headrace.core.types.rows import Row
from headrace.core.types.type_info import Types
from headrace.functions.specs.columnar_specs import EventTimeWindows, RowJoinSpec, WindowRowJoinSpec
from headrace.testing.operator_harness import OperatorHarness, Rows

LEFT = Types.ROW_NAMED(["a", "left"], [Types.STRING(), Types.INT()])
RIGHT = Types.ROW_NAMED(["b", "right"], [Types.STRING(), Types.INT()])
BOTH = Types.ROW_NAMED(
    ["a", "left", "b", "right"], [Types.STRING(), Types.INT(), Types.STRING(), Types.INT()]
)
SIZE = 10


def _harness(spec: Any) -> OperatorHarness:
    return OperatorHarness(
        spec,
        input_types=[LEFT, RIGHT],
        output_type=BOTH,
        keys=[lambda row: row["a"], lambda row: row["b"]],
        key_type=Types.STRING(),
    )


def plain_join() -> OperatorHarness:
    return _harness(RowJoinSpec(("a",), ("b",)))


def window_join() -> OperatorHarness:
    return _harness(WindowRowJoinSpec(EventTimeWindows(SIZE, SIZE, 0), ("a",), ("b",)))


def left(*rows: tuple[str, int], times: list[int] | None = None) -> Rows:
    return Rows([Row(a=key, left=n) for key, n in rows], times, 0)


def right(*rows: tuple[str, int], times: list[int] | None = None) -> Rows:
    return Rows([Row(b=key, right=n) for key, n in rows], times, 1)
