"""Runs an operator that fails and is restored after every step, as it was and at other parallelisms.

A step must emit what an undisturbed operator emits in it. The order is left open: timers of one time fire in any, and
keys are on several subtasks.
"""

from collections.abc import Callable, Sequence
from itertools import cycle
from typing import Any, Final

import numpy as np

from headrace.checkpoint.handles import OperatorSubtaskState
from headrace.core.key_groups import subtasks_of
from headrace.testing.operator_harness import (
    HARNESS_KEY_GROUPS,
    HarnessStep,
    OperatorHarness,
    RecordedOutput,
    Rows,
)

_PARALLELISMS: Final = (3, 2, 1, 5)

StepOutput = dict[str, list[str]]
"""Rows that a step has emitted, in no order, by side output ("" is the main one)."""


def assert_same_with_restarts(
    create: Callable[[], OperatorHarness], steps: Sequence[HarnessStep], *, finishes: bool
) -> None:
    """AssertionError where a step puts out something else after the operator was put away and came back before it."""
    undisturbed, harness = _alone(create), _alone(create)
    for step in steps:
        harness.restart(harness.snapshot())
        wanted = _output_of([undisturbed], lambda one, step=step: one.perform(step))
        got = _output_of([harness], lambda one, step=step: one.perform(step))
        assert got == wanted, f"restarted before {step}: {got} is not {wanted}"
    if finishes:
        harness.restart(harness.snapshot())
        wanted = _output_of([undisturbed], OperatorHarness.finish)
        got = _output_of([harness], OperatorHarness.finish)
        assert got == wanted, f"restarted before the end: {got} is not {wanted}"


def assert_same_at_other_parallelisms(
    create: Callable[[], OperatorHarness], steps: Sequence[HarnessStep], *, finishes: bool
) -> None:
    """AssertionError where changing the parallelism at each step changes what a step puts out. Keyed operators only."""
    undisturbed = _alone(create)
    subtasks = [_alone(create)]
    for step, parallelism in zip(steps, cycle(_PARALLELISMS), strict=False):
        wanted = _output_of([undisturbed], lambda one, step=step: one.perform(step))
        subtasks = _rescaled(create, subtasks, parallelism)
        got = _output_of(subtasks, lambda one, step=step, all=subtasks: _share(all, one, step))
        assert got == wanted, f"at parallelism {parallelism}, {step}: {got} is not {wanted}"
    if finishes:
        wanted = _output_of([undisturbed], OperatorHarness.finish)
        got = _output_of(subtasks, OperatorHarness.finish)
        assert got == wanted, f"at the end: {got} is not {wanted}"


def _alone(create: Callable[[], OperatorHarness]) -> OperatorHarness:
    """Return a harness that shares no user function with others, which `open` ties to one operator."""
    harness = create()
    harness.restart(None)
    return harness


def _rescaled(
    create: Callable[[], OperatorHarness], olds: Sequence[OperatorHarness], parallelism: int
) -> list[OperatorHarness]:
    parts = [old.snapshot() for old in olds]
    merged = OperatorSubtaskState(tuple(chunk for part in parts for chunk in part.chunks))
    for old in olds:
        old.close()
    news = [create() for _ in range(parallelism)]
    for index, new in enumerate(news):
        new.close()
        new.timers.forget_all()
        new.timers.advance_to(olds[0].clock.now_ms())
        new.watermark_ms = olds[0].watermark_ms
        new.output.watermark_ms, new.output.is_idle = olds[0].watermark_ms, olds[0].output.is_idle
        new.restart(merged, parallelism, index)
    return news


def _share(
    all_subtasks: Sequence[OperatorHarness], one: OperatorHarness, step: HarnessStep
) -> None:
    """Carry out a step on one subtask: of rows, those of its keys."""
    if not isinstance(step, Rows):
        one.perform(step)
        return
    batch = one.batch(step)
    assert batch.key_hashes is not None
    owners = subtasks_of(batch.key_hashes, len(all_subtasks), HARNESS_KEY_GROUPS)
    index = next(index for index, other in enumerate(all_subtasks) if other is one)
    one.process(batch.take(np.flatnonzero(owners == index)), step.input_number)


def _output_of(
    harnesses: Sequence[OperatorHarness], perform: Callable[[OperatorHarness], None]
) -> StepOutput:
    rows: StepOutput = {}
    for harness in harnesses:
        output = harness.output
        before = {name: len(elements) for name, elements in _elements(output).items()}
        perform(harness)
        for name, elements in _elements(output).items():
            made = [repr(one) for one in elements[before.get(name, 0) :] if one[0] == "row"]
            if made:
                rows.setdefault(name, []).extend(made)
    return {name: sorted(made) for name, made in rows.items()}


def _elements(output: RecordedOutput) -> dict[str, list[tuple[Any, ...]]]:
    return {"": output.main, **output.sides}
