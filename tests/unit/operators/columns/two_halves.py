"""Steps for operators in two halves: drawn batches for the first, and what that makes of them for the second."""

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any, TypeVar

from headrace.core.types.rows import Row
from headrace.testing.operator_harness import HarnessStep, OperatorHarness, Rows, WatermarkAt

D = TypeVar("D", bound=tuple[Any, ...])


def steps_of(
    batches: Sequence[list[D] | int], row_of: Callable[[int, D], Row]
) -> list[HarnessStep]:
    """Return batches and watermarks as steps. `row_of`: the row of a number and what was drawn, whose time is last."""
    steps: list[HarnessStep] = []
    number = 0
    for batch in batches:
        if isinstance(batch, int):
            steps.append(WatermarkAt(batch))
            continue
        rows = [row_of(index, drawn) for index, drawn in enumerate(batch, start=number)]
        number += len(batch)
        steps.append(Rows(rows, [drawn[-1] for drawn in batch]))
    return steps


def second_steps(local: OperatorHarness, steps: list[HarnessStep]) -> list[HarnessStep]:
    """Return what the first half emits, as steps of the second."""
    for step in steps:
        local.perform(step)
    local.finish()
    made: list[HarnessStep] = []
    for kind, several in groupby(local.output.main, key=lambda element: element[0]):
        if kind == "row":
            made.append(Rows([element[1] for element in several]))
        else:
            made += [WatermarkAt(element[1]) for element in several]
    return made
