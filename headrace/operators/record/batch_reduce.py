"""Reduce and rolling aggregations in BATCH mode: one result per key, once all its records were folded.

The records of a key follow each other, so that the loop over them is itertools': 50 ns for each besides the function.
Source: Flink BatchGroupedReduceOperator.
"""

from collections.abc import Callable, Sequence
from itertools import accumulate, groupby
from typing import Any, Final

import numpy as np

from headrace.core.elements import MIN_TIMESTAMP
from headrace.core.errors import USER_EXCEPTIONS
from headrace.core.record_batch import RecordBatch
from headrace.core.types.round_trip_normalizer import integer_bounds, unchanged_class
from headrace.core.types.type_info import BasicTypeInfo, TupleTypeInfo, TypeInformation
from headrace.operators.record.reduce import ReduceOperator, RollingAggregationOperator
from headrace.operators.runtime.operator import OperatorContext, Output
from headrace.operators.runtime.user_code import user_error

_NOTHING: Final = object()
_RUN_MIN: Final = 8
"""Records of a key from which on a loop of its own is cheaper than to put each into state."""
AreKept = Callable[[Sequence[Any]], bool]


class BatchReduceOperator(ReduceOperator):
    """Emits the fold of a key's records, with the timestamp of the last one, when the key ends."""

    def __init__(self, spec: Any) -> None:
        super().__init__(spec)
        # By key, in the order in which keys began: those of one batch, which end together.
        self._last: dict[Any, tuple[Any, int]] = {}
        self._are_kept: AreKept | None = None

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        self._are_kept = _check_of(context.types.inputs[0].value_type)

    def process_batch(self, batch: RecordBatch, output: Output) -> None:
        if self._are_kept is None:
            super().process_batch(batch, output)
            return
        done = start = 0
        for key, run in groupby(batch.keys()):
            end = start + len(list(run))
            if end - start >= _RUN_MIN and self._are_kept is not None:
                self._process(batch, done, start, output)
                done = end if self._fold(key, batch, start, end) else start
            start = end
        self._process(batch, done, batch.num_rows, output)

    def _process(self, batch: RecordBatch, start: int, end: int, output: Output) -> None:
        """Put the records [start, end) into state one by one."""
        if start < end:
            super().process_batch(batch.slice(start, end - start), output)

    def _fold(self, key: Any, batch: RecordBatch, start: int, end: int) -> bool:
        """Fold the records [start, end), all of one key; return whether it was possible.

        It is not where the state would not keep each fold as it is: that run is left to the loop that puts fold after
        fold into state and calls the function again, and so are all later ones, for which it is called once.
        """
        self._backend.key_scope.entry = key
        folds: list[Any] = []
        held = self._state.entries.get(key, _NOTHING)
        first = () if held is _NOTHING else (held,)
        try:
            # As far as the function went: a fold that state refuses is told of first.
            folds.extend(accumulate((*first, *batch.rows()[start:end]), self._reduce))
        except USER_EXCEPTIONS as error:
            if not folds or self._are_all_kept(folds):
                raise user_error(error, self.context.operator_name) from error
        if not self._are_all_kept(folds):
            self._are_kept = None
            return False
        self._state.entries[key] = folds[-1]
        times = batch.timestamps
        self._last[key] = folds[-1], MIN_TIMESTAMP if times is None else int(times[end - 1])
        self._backend.end_batch()
        return True

    def _are_all_kept(self, folds: Sequence[Any]) -> bool:
        assert self._are_kept is not None
        return self._are_kept(folds)

    def _emit_results(self, rows: list[Any], batch: RecordBatch, output: Output) -> None:
        times = [MIN_TIMESTAMP] * batch.num_rows
        if batch.timestamps is not None:
            times = batch.timestamps.tolist()
        self._last.update(zip(batch.keys(), zip(rows, times, strict=True), strict=True))

    def end_keys(self, output: Output) -> None:
        results, self._last = list(self._last.values()), {}
        self._backend.forget_keys()
        if results:
            times = np.array([time for _, time in results], dtype=np.int64)
            is_timed = bool((times != MIN_TIMESTAMP).any())
            self._emitter.emit([row for row, _ in results], times if is_timed else None, output)

    def process_watermark(self, timestamp_ms: int, output: Output) -> None:
        self.end_keys(output)
        super().process_watermark(timestamp_ms, output)


class BatchRollingAggregationOperator(BatchReduceOperator, RollingAggregationOperator):
    """Emits the sum, min, max, min_by or max_by of a key's records when the key ends."""


def _check_of(value_type: TypeInformation) -> AreKept | None:
    """Return a check that values of a type are all in the form that a state keeps; None where there is no quick one.

    Where it says False values may be so all the same.
    """
    if isinstance(value_type, TupleTypeInfo):
        checks = [_check_of(field) for field in value_type.field_types]
        known = [check for check in checks if check is not None]
        if len(known) < len(checks):
            return None

        def are_kept(values: Sequence[Any]) -> bool:
            if set(map(type, values)) != {tuple} or set(map(len, values)) != {len(known)}:
                return False
            fields = zip(*values, strict=True)
            return all(check(field) for check, field in zip(known, fields, strict=True))

        return are_kept
    if not isinstance(value_type, BasicTypeInfo):
        return None
    bounds, usual = integer_bounds(value_type), unchanged_class(value_type)
    if bounds is not None:
        lowest, highest = bounds
        return lambda values: (
            set(map(type, values)) == {int} and lowest <= min(values) and max(values) <= highest
        )
    return None if usual is None else lambda values: set(map(type, values)) == {usual}
