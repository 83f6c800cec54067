"""Runs an operator in every way that must give the same output: cuts, forms, failures and parallelism change nothing.

`run_all_ways` carries out the same steps several times: rows in batches of every size, as Python values and as
columns, with a restart from a snapshot after each step, and at another parallelism at each step.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from headrace.core.randomness import SeededRandom
from headrace.core.record_batch import RecordBatch
from headrace.testing.operator_harness import HarnessStep, OperatorHarness, Rows
from headrace.testing.operator_restarts import (
    assert_same_at_other_parallelisms,
    assert_same_with_restarts,
)

Cutter = Callable[[RecordBatch], Iterable[RecordBatch]]


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
    """Carry out `steps` on fresh harnesses in every way; AssertionError where outputs differ.

    `canonical` brings an output into the form that is compared, for operators that leave an order open. The harness
    that was fed whole batches is returned.
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
    """Do the same without failures and at one parallelism, which is cheap enough for many random steps."""
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
