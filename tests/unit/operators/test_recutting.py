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
    Rows,
)
from headrace.testing.operator_ways import WAYS, Cutter
from tests.unit.operators.recutting_cases import CASES, Case
from tests.unit.operators.recutting_steps import SHOWN, Drawn, steps_of

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


def test_every_operator_has_a_case() -> None:
    assert CASES.keys() == registry.operator_kinds()


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
