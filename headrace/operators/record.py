"""Operators around functions of one record: map, flat_map, filter. On keyed streams they have keyed state.

Source: Flink StreamMap, StreamFlatMap, StreamFilter.
"""

from collections.abc import Callable, Iterable
from typing import Any, ClassVar

import numpy as np

from headrace.core.record_batch import RecordBatch
from headrace.functions.specs import FunctionSpec
from headrace.operators.emission import RowEmitter, keep_rows
from headrace.operators.operator import OneInputOperator, OperatorContext, Output
from headrace.operators.runtime_context import OperatorRuntimeContext
from headrace.operators.user_code import close_function, method_of, open_function, user_error
from headrace.state.backend import NO_KEY
from headrace.state.heap import HeapKeyedStateBackend


class RecordFunctionOperator(OneInputOperator):
    """Base: opens and closes the function, and hands out rows, each under its key where the input is keyed."""

    method: ClassVar[str]
    _backend: HeapKeyedStateBackend | None = None
    _is_function_open = False

    def __init__(self, spec: FunctionSpec) -> None:
        self._function = spec.function
        self._call: Callable[[Any], Any] = method_of(spec.function, self.method)

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        if context.types.inputs[0].key_type is not None:
            self._backend = HeapKeyedStateBackend()
        self._emitter = RowEmitter(context.types, context.operator_name)
        self._is_function_open = True
        runtime_context = OperatorRuntimeContext(context, self._backend)
        open_function(self._function, runtime_context, context.operator_name)

    def close(self) -> None:
        if self._is_function_open:
            self._is_function_open = False
            close_function(self._function, self.context.operator_name)

    def _rows(self, batch: RecordBatch) -> Iterable[Any]:
        """Rows one by one; each is yielded after its key became current."""
        return batch.rows() if self._backend is None else _keyed_rows(batch, self._backend)


def _keyed_rows(batch: RecordBatch, backend: HeapKeyedStateBackend) -> Iterable[Any]:
    scope = backend.key_scope
    for key, value in zip(batch.keys(), batch.rows(), strict=True):
        scope.entry = key
        yield value
    scope.entry = NO_KEY


class MapOperator(RecordFunctionOperator):
    """One row out for each row in; timestamps are kept."""

    method = "map"

    def process_batch(self, batch: RecordBatch, output: Output) -> None:
        try:
            rows = list(map(self._call, self._rows(batch)))
        except Exception as error:
            raise user_error(error, self.context.operator_name) from error
        self._emitter.emit(rows, batch.timestamps, output)


class FlatMapOperator(RecordFunctionOperator):
    """Any number of rows out for each row in, all with its timestamp."""

    method = "flat_map"

    def process_batch(self, batch: RecordBatch, output: Output) -> None:
        call = self._call
        rows: list[Any] = []
        ends: list[int] = []
        try:
            for value in self._rows(batch):
                results = call(value)
                if results is not None:
                    rows.extend(iterable_results(results, "flat_map"))
                ends.append(len(rows))
        except Exception as error:
            raise user_error(error, self.context.operator_name) from error
        timestamps = batch.timestamps
        if timestamps is not None:
            timestamps = np.repeat(timestamps, np.diff(ends, prepend=0))
        self._emitter.emit(rows, timestamps, output)


class FilterOperator(RecordFunctionOperator):
    """Keeps the rows for which the function is true. Same type, timestamps kept."""

    method = "filter"

    def process_batch(self, batch: RecordBatch, output: Output) -> None:
        try:
            kept = [bool(keep) for keep in map(self._call, self._rows(batch))]
        except Exception as error:
            raise user_error(error, self.context.operator_name) from error
        mask = np.array(kept, dtype=np.bool_)
        output.emit(keep_rows(batch, mask, self.context.types.output))


def iterable_results(results: Any, method: str) -> Iterable[Any]:
    """Return `results`, or raise the TypeError that says what `method` should have returned."""
    if isinstance(results, Iterable):
        return results
    raise TypeError(
        f"{method} must return an iterable, be a generator or return None, "
        f"but it returned {type(results).__name__} {results!r:.60}"
    )
