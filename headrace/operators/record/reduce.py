"""Reduce and rolling aggregations on keyed streams: emits the fold so far for each record; in BATCH mode one per key.

Source: Flink StreamGroupedReduceOperator, BatchGroupedReduceOperator, SumAggregator, ComparableAggregator.
"""

import operator
from collections.abc import Callable, Sequence
from copy import copy as shallow_copy
from itertools import accumulate, groupby
from typing import Any, Final

import numpy as np

from headrace.core.elements import MIN_TIMESTAMP
from headrace.core.errors import USER_EXCEPTIONS
from headrace.core.record_batch import RecordBatch
from headrace.core.types.round_trip_normalizer import integer_bounds, unchanged_class
from headrace.core.types.rows import Row
from headrace.core.types.type_info import BasicTypeInfo, TupleTypeInfo, TypeInformation
from headrace.functions.specs.operator_specs import ReduceSpec, RollingAggregationSpec
from headrace.functions.state import ReducingStateDescriptor
from headrace.operators.runtime.emission import RowEmitter
from headrace.operators.runtime.operator import OneInputOperator, OperatorContext, Output
from headrace.operators.runtime.record_state import own_state, refused_fold
from headrace.operators.runtime.user_code import (
    FunctionOperator,
    method_of,
    refuse_generator,
    user_error,
)
from headrace.state.backend import StateAccessError

Reduce = Callable[[Any, Any], Any]

_STATE_NAME: Final = "_reduce_state"
_NOTHING: Final = object()
_RUN_MIN: Final = 8
"""Number of records of a key from which a separate loop is cheaper than updating the state for each record."""
AreKept = Callable[[Sequence[Any]], bool]


class ReduceOperator(FunctionOperator, OneInputOperator):
    """Emits the running result for every record; a key's first record passes through unchanged."""

    def __init__(self, spec: ReduceSpec) -> None:
        super().__init__(spec)
        self._reduce: Reduce = method_of(spec.function, "reduce")

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        self._backend = context.state.create_keyed_backend()
        value_type = context.types.inputs[0].value_type
        descriptor = ReducingStateDescriptor(_STATE_NAME, self._reduce, value_type)
        self._state: Any = own_state(
            self._backend, descriptor, self._backend.key_scope, context.operator_name
        )
        self._emitter = RowEmitter(context)
        self._open_function(self._backend)

    def process_batch(self, batch: RecordBatch, output: Output) -> None:
        scope, add, get = self._backend.key_scope, self._state.add, self._state.get
        copies = self._emitter.copies
        unchanging, copy = copies.unchanging, copies.copy
        rows: list[Any] = []
        self._backend.begin_batch(batch.num_rows)
        try:
            keys = self._backend.event_clock.along(batch.keys(), batch.timestamps)
            for key, value in zip(keys, batch.rows(), strict=True):
                scope.entry = key
                add(value)
                result = get()
                if result is None and value is not None:
                    raise TypeError("reduce must return the combined value, but it returned None")
                rows.append(result if type(result) in unchanging else copy(result))
            refuse_generator(rows[-1], "reduce")
        except StateAccessError as error:
            refused = self._refused(error, is_input=get() is None)
            raise user_error(refused, self.context.operator_name) from error
        except USER_EXCEPTIONS as error:
            raise user_error(error, self.context.operator_name) from error
        self._backend.end_batch()
        self._emit_results(rows, batch, output)

    def _emit_results(self, rows: list[Any], batch: RecordBatch, output: Output) -> None:
        """Emit the folds so far, one for each record of `batch`."""
        self._emitter.emit(rows, batch.timestamps, output)

    def process_watermark(self, timestamp_ms: int, output: Output) -> None:
        self._backend.event_clock.advance(timestamp_ms)
        super().process_watermark(timestamp_ms, output)

    def _refused(self, error: StateAccessError, *, is_input: bool) -> Exception:
        """Return the error for a value that the state refused."""
        name = self.context.operator_name
        return refused_fold(error, _STATE_NAME, self._function, name, is_input=is_input)


class RollingAggregationOperator(ReduceOperator):
    """Emits running sum, min, max, min_by or max_by of a field, or of the record itself if it is a number."""

    def __init__(self, spec: RollingAggregationSpec) -> None:
        super().__init__(ReduceSpec(rolling_reduce(spec.aggregation, spec.position)))
        self._aggregation = spec.aggregation

    def _refused(self, error: StateAccessError, *, is_input: bool) -> Exception:
        misfit = error.misfit
        if misfit is None or is_input:
            return error
        return TypeError(
            f"the current {self._aggregation}, {misfit.shown}, does not fit the stream's type {misfit.type_text}: "
            f"{misfit.reason}; declare a wider type"
        )


def rolling_reduce(aggregation: str, position: int | str) -> Reduce:
    """Return the reduce function of an aggregation.

    sum, min and max keep the other fields of the first record; min_by and max_by return the earliest record with
    the extreme.
    """
    if aggregation == "sum":
        return lambda old, new: _with_field(
            old, position, _field(old, position) + _field(new, position)
        )
    is_better = operator.lt if aggregation.startswith("min") else operator.gt
    if aggregation.endswith("_by"):
        return lambda old, new: (
            new if is_better(_field(new, position), _field(old, position)) else old
        )

    def keep_extreme(old: Any, new: Any) -> Any:
        candidate = _field(new, position)
        return (
            _with_field(old, position, candidate)
            if is_better(candidate, _field(old, position))
            else old
        )

    return keep_extreme


def _is_composite(value: Any) -> bool:
    return isinstance(value, Row | tuple | list)


def _field(value: Any, position: int | str) -> Any:
    return value[position] if _is_composite(value) else value


def _with_field(value: Any, position: int | str, field: Any) -> Any:
    if not _is_composite(value):
        return field
    if isinstance(value, tuple):
        assert isinstance(position, int)
        return (*value[:position], field, *value[position + 1 :])
    changed = shallow_copy(value)
    changed[position] = field
    return changed


class BatchReduceOperator(ReduceOperator):
    """Emits the fold of a key's records, with the timestamp of the last one, when the key ends."""

    def __init__(self, spec: Any) -> None:
        super().__init__(spec)
        # By key, in order of their first record: keys of one batch, which end together.
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
        """Add the records [start, end) to the state one by one."""
        if start < end:
            super().process_batch(batch.slice(start, end - start), output)

    def _fold(self, key: Any, batch: RecordBatch, start: int, end: int) -> bool:
        """Fold the records [start, end), all of one key; return whether it was possible.

        It is impossible if the state would not store each fold unchanged: then this run and all later ones are left to
        the loop that puts each fold into the state. For this run that loop calls the function again.
        """
        self._backend.key_scope.entry = key
        folds: list[Any] = []
        held = self._state.entries.get(key, _NOTHING)
        first = () if held is _NOTHING else (held,)
        try:
            # Up to the function's failure: a fold that the state refuses is reported first.
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
    """Return a check that all values of a type are in the form that a state stores; None if there is no quick check.

    If it returns False the values may nevertheless be in that form.
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
