"""Operators around functions of one record: map, flat_map, filter, and map and flat_map on connected streams.

On keyed streams they have keyed state. Source: Flink StreamMap, StreamFlatMap, StreamFilter, CoStreamMap.
"""

from collections.abc import Callable, Iterable, Iterator
from types import GeneratorType
from typing import Any, Final

import numpy as np

from headrace.core.errors import USER_EXCEPTIONS
from headrace.core.record_batch import RecordBatch
from headrace.graph.pipeline_options import OBJECT_REUSE
from headrace.operators.runtime.emission import EMIT_ROWS_MAX, RowEmitter, keep_rows
from headrace.operators.runtime.interleaved_inputs import interleaved, of_either
from headrace.operators.runtime.operator import (
    InputNumbers,
    OneInputOperator,
    OperatorContext,
    Output,
    TwoInputOperator,
)
from headrace.operators.runtime.user_code import (
    FunctionOperator,
    method_of,
    not_iterable,
    refuse_generator,
    user_error,
)
from headrace.state.backend import KeyedStateBackend

RecordFunction = Callable[[Any], Any]

# Checking whether one of these is iterable takes as long as calling a small function.
_USUAL_RESULTS: Final = frozenset((GeneratorType, list, tuple))


class RecordFunctionOperator(FunctionOperator):
    """Base: applies a function to each row, under the row's key if the inputs are keyed."""

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        self._backend = context.state.create_keyed_backend() if self._has_keyed_inputs else None
        self._emitter = RowEmitter(context)
        self._open_function(self._backend)

    def process_watermark(self, timestamp_ms: int, output: Output) -> None:
        if self._backend is not None:
            self._backend.event_clock.advance(timestamp_ms)
        super().process_watermark(timestamp_ms, output)

    def _rows(self, batch: RecordBatch) -> Iterable[Any]:
        """Yield rows; before each, its key becomes current."""
        return batch.rows() if self._backend is None else _keyed_rows(batch, self._backend)

    def _map(self, call: RecordFunction, batch: RecordBatch, output: Output) -> None:
        copies = self._emitter.copies
        unchanging, copy = copies.unchanging, copies.copy
        try:
            # Not `map`, which would treat a StopIteration from user code as the end of the rows.
            rows = [
                made if type(made := call(row)) in unchanging else copy(made)
                for row in self._rows(batch)
            ]
            refuse_generator(rows[0], "map")
        except USER_EXCEPTIONS as error:
            raise user_error(error, self.context.operator_name) from error
        self._emitter.emit(rows, batch.timestamps, output)

    def _flat_map(self, call: RecordFunction, batch: RecordBatch, output: Output) -> None:
        for rows, begin, counts in self._result_pieces(call, batch):
            self._emit_repeated(rows, batch, begin, counts, output)

    def _result_pieces(
        self, call: RecordFunction, batch: RecordBatch
    ) -> Iterator[tuple[list[Any], int, list[int]]]:
        """Yield results in pieces of at most EMIT_ROWS_MAX, as one record may give more than fits into memory.

        A piece is (results, index of the first record with results, number of results of each record from there on).
        """
        copies = self._emitter.copies
        unchanging, copy = copies.unchanging, copies.copy
        rows: list[Any] = []
        counts: list[int] = []
        begin = 0
        is_waiting = False
        try:
            for value in self._rows(batch):
                results = call(value)
                counts.append(0)
                if results is None:
                    continue
                if type(results) not in _USUAL_RESULTS and not isinstance(results, Iterable):
                    raise not_iterable(results, "flat_map")
                before = len(rows)
                for made in results:
                    rows.append(made if type(made) in unchanging else copy(made))
                    if len(rows) < EMIT_ROWS_MAX:
                        continue
                    counts[-1] = len(rows) - before
                    is_waiting = True
                    yield rows, begin, counts
                    is_waiting = False
                    begin += len(counts) - 1
                    rows, counts, before = [], [0], 0
                counts[-1] = len(rows) - before
        except USER_EXCEPTIONS as error:
            if is_waiting:
                raise  # the caller has failed, and closes this generator
            raise user_error(error, self.context.operator_name) from error
        yield rows, begin, counts

    def _emit_repeated(
        self, rows: list[Any], batch: RecordBatch, begin: int, counts: list[int], output: Output
    ) -> None:
        """Emit results of the batch's rows from `begin` on.

        `counts`: results of each row, which get the row's timestamp.
        """
        timestamps = batch.timestamps
        if timestamps is not None:
            timestamps = np.repeat(timestamps[begin : begin + len(counts)], counts)
        self._emitter.emit(rows, timestamps, output)


def _keyed_rows(batch: RecordBatch, backend: KeyedStateBackend) -> Iterable[Any]:
    scope = backend.key_scope
    backend.begin_batch(batch.num_rows)
    keys = backend.event_clock.along(batch.keys(), batch.timestamps)
    for key, value in zip(keys, batch.rows(), strict=True):
        scope.entry = key
        yield value
    backend.end_batch()


class MapOperator(RecordFunctionOperator, OneInputOperator):
    """Emits one row for each row, with its timestamp."""

    def process_batch(self, batch: RecordBatch, output: Output) -> None:
        self._map(method_of(self._function, "map"), batch, output)


class FlatMapOperator(RecordFunctionOperator, OneInputOperator):
    """Emits any number of rows for each row, all with its timestamp."""

    def process_batch(self, batch: RecordBatch, output: Output) -> None:
        self._flat_map(method_of(self._function, "flat_map"), batch, output)


class FilterOperator(RecordFunctionOperator, OneInputOperator):
    """Keeps the rows for which the function is true. Same type, timestamps kept."""

    def open(self, context: OperatorContext) -> None:
        self._reuses_objects = context.settings.get_option(OBJECT_REUSE)
        super().open(context)

    def process_batch(self, batch: RecordBatch, output: Output) -> None:
        try:
            call = method_of(self._function, "filter")
            answers = [call(row) for row in self._rows(batch)]
            refuse_generator(answers[0], "filter")
            kept = [bool(answer) for answer in answers]
        except USER_EXCEPTIONS as error:
            raise user_error(error, self.context.operator_name) from error
        mask = np.array(kept, dtype=np.bool_)
        output.emit(
            keep_rows(batch, mask, self.context.types.output, reuses_objects=self._reuses_objects)
        )


class CoMapOperator(RecordFunctionOperator, TwoInputOperator):
    """Operator of a CoMapFunction: `map1` for the first input, `map2` for the second."""

    def process_batch1(self, batch: RecordBatch, output: Output) -> None:
        self._map(self._function.map1, batch, output)

    def process_batch2(self, batch: RecordBatch, output: Output) -> None:
        self._map(self._function.map2, batch, output)

    def process_interleaved(
        self,
        input_numbers: InputNumbers,
        batch1: RecordBatch,
        batch2: RecordBatch,
        output: Output,
    ) -> None:
        call = of_either(self._function.map1, self._function.map2)
        self._map(call, interleaved(input_numbers, batch1, batch2), output)


class CoFlatMapOperator(RecordFunctionOperator, TwoInputOperator):
    """Operator of a CoFlatMapFunction: `flat_map1` for the first input, `flat_map2` for the second."""

    def process_batch1(self, batch: RecordBatch, output: Output) -> None:
        self._flat_map(self._function.flat_map1, batch, output)

    def process_batch2(self, batch: RecordBatch, output: Output) -> None:
        self._flat_map(self._function.flat_map2, batch, output)

    def process_interleaved(
        self,
        input_numbers: InputNumbers,
        batch1: RecordBatch,
        batch2: RecordBatch,
        output: Output,
    ) -> None:
        call = of_either(self._function.flat_map1, self._function.flat_map2)
        self._flat_map(call, interleaved(input_numbers, batch1, batch2), output)
