"""Batch at a time gives exactly what record at a time gives: for every operator, however batches are cut.

The steps are drawn, and so is the place at which the operator is put away and comes back. Whoever adds an operator
adds a case.
"""

import io
from collections.abc import Sequence
from contextlib import redirect_stdout
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headrace.metrics.names import NUM_LATE_RECORDS_DIVERTED, NUM_LATE_RECORDS_DROPPED
from headrace.operators import registry
from headrace.testing.operator_harness import (
    HarnessStep,
    Idle,
    Rows,
    TimeAt,
    WatermarkAt,
)
from headrace.testing.operator_ways import WAYS, Cutter
from tests.unit.operators.recutting_cases import CASES, Case

Drawn = list[Any]
"""("rows", input, [(key, n, time), …]), ("watermark", by), ("time", by) or ("idle",)."""

ROWS = st.tuples(
    st.just("rows"),
    st.integers(0, 1),
    st.lists(
        st.tuples(st.sampled_from("abc"), st.integers(0, 4), st.integers(-15, 45)),
        min_size=1,
        max_size=9,
    ),
)
STEPS = st.lists(
    st.one_of(
        ROWS,
        ROWS,
        st.tuples(st.just("watermark"), st.integers(1, 15)),
        st.tuples(st.just("time"), st.integers(1, 300)),
        st.tuples(st.just("idle")),
    ),
    max_size=8,
)
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


def test_every_operator_has_a_case() -> None:
    assert CASES.keys() == set(registry._OPERATORS)


@pytest.mark.slow
@pytest.mark.parametrize("kind", CASES)
@given(STEPS, st.integers(0, 8))
@example(SHOWN, 4)
def test_cuts_of_batches_do_not_show(kind: str, drawn: Drawn, restart_at: int) -> None:
    case = CASES[kind]
    steps = steps_of(case, drawn)
    row_by_row = _outcome(case, steps, WAYS["row by row"], restart_at)
    for way, cut in WAYS.items():
        assert _outcome(case, steps, cut, restart_at) == row_by_row, way


@pytest.mark.parametrize("kind", CASES)
def test_what_is_shown_does_something(kind: str) -> None:
    case = CASES[kind]
    main, sides, *others = _outcome(case, steps_of(case, SHOWN), WAYS["row by row"], 4)
    assert "row" in str(main) or sides or any(others)


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


def _outcome(
    case: Case, steps: Sequence[HarnessStep], cut: Cutter, restart_at: int
) -> tuple[Any, ...]:
    with redirect_stdout(io.StringIO()) as printed:
        harness = case.create()
        for number, step in enumerate(steps):
            if number == restart_at and case.is_shippable:
                harness.restart(harness.snapshot())
            if isinstance(step, Rows):
                for part in cut(harness.batch(step)):
                    case.feed(harness, part, step.input_number)
            else:
                harness.perform(step)
        harness.finish()
        seen = case.witness(harness)
    late = [
        harness.metrics.counter(name).get_count()
        for name in (NUM_LATE_RECORDS_DROPPED, NUM_LATE_RECORDS_DIVERTED)
    ]
    output = harness.output
    return case.canonical(output.main), output.sides, printed.getvalue(), late, seen
