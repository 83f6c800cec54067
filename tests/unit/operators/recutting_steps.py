"""Steps of a re-cut input, and how they are shown."""

from typing import Any

from headrace.testing.operator_harness import (
    HarnessStep,
    Idle,
    Rows,
    TimeAt,
    WatermarkAt,
)
from tests.unit.operators.recutting_cases import Case

Drawn = list[Any]


"""("rows", input, [(key, n, time), …]), ("watermark", by), ("time", by) or ("idle",)."""


SHOWN: Drawn = [
    ("rows", 0, [("a", 1, 1), ("b", 3, 2), ("a", 4, 2), ("a", 1, 30), ("c", 2, 4), ("a", 0, 5)]),
    ("rows", 1, [("b", 2, 3), ("a", 3, 2), ("a", 1, 6)]),
    ("watermark", 12),
    ("time", 250),
    ("rows", 1, [("a", 1, 14), ("b", 4, 1)]),
    ("rows", 0, [("a", 1, 3), ("b", 3, 13), ("a", 2, 8), ("b", 3, 11), ("a", 5, 14)]),
    ("idle",),
    ("watermark", 9),
    ("rows", 0, [("c", 2, 22), ("c", 2, 2)]),
]


def steps_of(case: Case, drawn: Drawn) -> list[HarnessStep]:
    steps: list[HarnessStep] = []
    watermark_ms = time_ms = 0
    for one in drawn:
        match one:
            case ("rows", drawn_input, rows):
                side = drawn_input % case.input_count
                values = [case.record(*row, side) for row in rows]
                steps.append(Rows(values, [time for _, _, time in rows], side))
            case ("watermark", by):
                watermark_ms += by
                steps.append(WatermarkAt(watermark_ms))
            case ("time", by):
                time_ms += by
                steps.append(TimeAt(time_ms))
            case _:
                steps += [Idle(True), Idle(False)]
    return steps
