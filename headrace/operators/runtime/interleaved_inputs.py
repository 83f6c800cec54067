"""Interleaved inputs: the rows of two keyed inputs as one batch, for operators that have one loop for both.

BATCH mode sorts the rows of both inputs by key, so that a few rows of one input are followed by a few of the other.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from headrace.core.elements import MIN_TIMESTAMP
from headrace.core.record_batch import RecordBatch, Timestamps
from headrace.operators.runtime.operator import InputNumbers


def interleaved(numbers: InputNumbers, batch1: RecordBatch, batch2: RecordBatch) -> RecordBatch:
    """Return the rows of both as pairs (number of the input, record), in the order of `numbers`."""
    both = (batch1, batch2)
    inputs = numbers.tolist()
    hashes = np.empty(len(numbers), np.int32)
    for number, batch in enumerate(both):
        assert batch.key_hashes is not None, "only keyed inputs are sorted"
        hashes[numbers == number] = batch.key_hashes
    records = _in_order(inputs, [batch.rows() for batch in both])
    return RecordBatch(
        batch1.batch_type,
        len(inputs),
        rows=list(zip(inputs, records, strict=True)),
        timestamps=_timestamps(numbers, both),
        keys=list(_in_order(inputs, [batch.keys() for batch in both])),
        key_hashes=hashes,
    )


def of_either(function1: Callable[..., Any], function2: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of pairs (number of the input, record) that calls the function of that input."""
    functions = (function1, function2)

    def call(pair: tuple[int, Any], *context: Any) -> Any:
        return functions[pair[0]](pair[1], *context)

    call.__name__ = f"{function1.__name__} or {function2.__name__}"
    return call


def _in_order(inputs: Sequence[int], values: Sequence[Sequence[Any]]) -> Iterable[Any]:
    takers = [iter(one).__next__ for one in values]
    return (takers[number]() for number in inputs)


def _timestamps(numbers: InputNumbers, both: Sequence[RecordBatch]) -> Timestamps | None:
    if all(batch.timestamps is None for batch in both):
        return None
    times: Timestamps = np.full(len(numbers), MIN_TIMESTAMP)
    for number, batch in enumerate(both):
        if batch.timestamps is not None:
            times[numbers == number] = batch.timestamps
    return times
