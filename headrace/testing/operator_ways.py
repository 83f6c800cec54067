"""Runs an operator in all ways that must give the same output: batches, forms, failures and parallelism change nothing.

`run_all_ways` carries out the same steps several times: rows in batches of every size, as Python values and as columns,
with a restart from a snapshot after each step, and at another parallelism at each step. After a restart a step must
emit the rows that an undisturbed operator emits in it, in any order, because timers of one time fire in any order, and
keys are on several subtasks.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import cycle
from typing import Any, Final

import numpy as np

from headrace.checkpoint.handles import OperatorSubtaskState
from headrace.core.key_groups import subtasks_of
from headrace.core.randomness import SeededRandom
from headrace.core.record_batch import RecordBatch
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
Cutter = Callable[[RecordBatch], Iterable[RecordBatch]]


def assert_same_with_restarts(
    create: Callable[[], OperatorHarness], steps: Sequence[HarnessStep], *, finishes: bool
) -> None:
    """Raise AssertionError if a step has another output after the operator was restarted before it."""
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
    """Raise AssertionError if changing the parallelism at each step changes a step's output. Keyed operators only."""
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
    """Return a harness that shares no user function with others, because `open` ties a function to one operator."""
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
    """Run a step on one subtask: of rows, only those with its keys."""
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


def _whole(batch: RecordBatch) -> Iterable[RecordBatch]:
    return (batch,)


def _row_by_row(batch: RecordBatch) -> Iterable[RecordBatch]:
    return (batch.slice(index, 1) for index in range(batch.num_rows))


def _as_columns(batch: RecordBatch) -> Iterable[RecordBatch]:
    return (RecordBatch.from_arrow(batch.batch_type, batch.to_arrow()),)


def _random_cuts(seed: int) -> Cutter:
    random = SeededRandom(seed)

    def cut(batch: RecordBatch) -> Iterable[RecordBatch]:
        offset = 0
        while offset < batch.num_rows:
            length = random.randint(1, batch.num_rows - offset)
            part = batch.slice(offset, length)
            yield part if random.random() < 0.5 else next(iter(_as_columns(part)))
            offset += length

    return cut


WAYS: dict[str, Cutter] = {
    "in one batch": _whole,
    "row by row": _row_by_row,
    "in columns": _as_columns,
    "cut at random (1)": _random_cuts(1),
    "cut at random (2)": _random_cuts(2),
}


def run_all_ways(
    create: Callable[[], OperatorHarness],
    steps: Sequence[HarnessStep],
    *,
    finishes: bool = True,
    canonical: Callable[[list[tuple[Any, ...]]], object] = lambda elements: elements,
) -> OperatorHarness:
    """Run `steps` on fresh harnesses in every way; AssertionError if outputs differ.

    `canonical` converts an output to the compared form, for operators without a fixed order. Returns the harness that
    received whole batches.
    """
    first = run_all_cuts(create, steps, finishes=finishes, canonical=canonical)
    assert_same_with_restarts(create, steps, finishes=finishes)
    if first.has_keyed_inputs:
        assert_same_at_other_parallelisms(create, steps, finishes=finishes)
    return first


def run_all_cuts(
    create: Callable[[], OperatorHarness],
    steps: Sequence[HarnessStep],
    *,
    finishes: bool = True,
    canonical: Callable[[list[tuple[Any, ...]]], object] = lambda elements: elements,
) -> OperatorHarness:
    """Run the same comparison without failures and at one parallelism, which is cheap enough for many random steps."""
    first: OperatorHarness | None = None
    for way, cut in WAYS.items():
        harness = _run_cut(create, steps, cut, finishes, reads_rows=cut is not _as_columns)
        if first is None:
            first = harness
        else:
            _assert_same(way, harness, first, canonical)
    assert first is not None
    return first


def _run_cut(
    create: Callable[[], OperatorHarness],
    steps: Sequence[HarnessStep],
    cut: Cutter,
    finishes: bool,
    *,
    reads_rows: bool,
) -> OperatorHarness:
    harness = create()
    harness.output.reads_rows = reads_rows
    for step in steps:
        if isinstance(step, Rows):
            for part in cut(harness.batch(step)):
                harness.process(part, step.input_number)
        else:
            harness.perform(step)
    if finishes:
        harness.finish()
    return harness


def _assert_same(
    way: str,
    harness: OperatorHarness,
    first: OperatorHarness,
    canonical: Callable[[list[tuple[Any, ...]]], object],
) -> None:
    wanted, got = first.output, harness.output
    assert canonical(got.main) == canonical(wanted.main), f"{way}: {got.main} is not {wanted.main}"
    assert got.sides.keys() == wanted.sides.keys(), way
    for tag, elements in got.sides.items():
        assert canonical(elements) == canonical(wanted.sides[tag]), f"{way}, side output {tag}"
