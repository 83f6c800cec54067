"""Running reduce and rolling aggregations on keyed streams: one result per record, the fold of its key so far.

Source: Flink StreamGroupedReduceOperator, SumAggregator, ComparableAggregator.
"""

import operator
from collections.abc import Callable
from copy import copy as shallow_copy
from typing import Any, Final

from headrace.core.errors import USER_EXCEPTIONS
from headrace.core.record_batch import RecordBatch
from headrace.core.types.rows import Row
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
        """Return the error for a value that the state did not take."""
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
            f"the {self._aggregation} so far, {misfit.shown}, does not fit the stream's type {misfit.type_text}: "
            f"{misfit.reason}; declare a wider one"
        )


def rolling_reduce(aggregation: str, position: int | str) -> Reduce:
    """Return the reduce function of an aggregation.

    sum, min and max keep the other fields of the first record; min_by and max_by give the earliest record that holds
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
