"""Operators around process functions and functions of connected streams.

A loop over the rows of a batch moves one context object along, sets the key if there is one and collects the results of
the function. Source: Flink ProcessOperator, KeyedProcessOperator, KeyedCoProcessOperator, CoStreamMap.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Protocol

import numpy as np

from headrace.core.elements import MIN_TIMESTAMP
from headrace.core.errors import USER_EXCEPTIONS
from headrace.core.record_batch import RecordBatch
from headrace.functions.failures import Guarded
from headrace.functions.process import TimeDomain
from headrace.operators.runtime.contexts import (
    ClockTimerService,
    FiringContext,
    KeyedRecordContext,
    KeyedTimerService,
    RecordContext,
)
from headrace.operators.runtime.emission import MovingContext, ResultChecks, ResultCollector
from headrace.operators.runtime.interleaved_inputs import interleaved, of_either
from headrace.operators.runtime.operator import (
    InputNumbers,
    OneInputOperator,
    OperatorContext,
    Output,
    TwoInputOperator,
)
from headrace.operators.runtime.timed_operator import TimedOperator
from headrace.operators.runtime.user_code import FunctionOperator, user_error
from headrace.state.backend import NO_KEY, EntryScope, KeyedStateBackend

_RUN_MIN: Final = 16
ElementFunction = Callable[[Any, Any], Any]
"""process_element: (value, context) -> iterable or None."""


class _ProcessingOperator(FunctionOperator):
    """Base of the operators for process functions: the loop over rows."""

    _scope: EntryScope
    _collector: ResultCollector
    _has_runs_of_keys = False
    """True if the records of a key follow each other."""

    def _open_function(self, backend: KeyedStateBackend | None) -> None:
        if isinstance(self._function, Guarded):
            self._function.check_results(ResultChecks(self.context.types))
        super()._open_function(backend)

    def _process_rows(
        self, call: ElementFunction, context: MovingContext, batch: RecordBatch, output: Output
    ) -> None:
        try:
            keys = self._keys(batch)
            process = self._collector.process_rows
            if self._has_runs_of_keys and batch.timestamps is None and _has_long_runs(batch):
                process = self._collector.process_runs
            process(call, context, self._scope, keys, batch, output)
        except USER_EXCEPTIONS as error:
            raise user_error(error, self.context.operator_name) from error

    def _keys(self, batch: RecordBatch) -> Iterable[Any]:
        """Return the keys under which the rows are handled."""
        return _keys_of(batch)


def _keys_of(batch: RecordBatch) -> Sequence[Any]:
    return batch.keys() if batch.is_keyed else [NO_KEY] * batch.num_rows


def _has_long_runs(batch: RecordBatch) -> bool:
    """Return whether records of one hash follow each other in runs that are long enough for a separate loop."""
    hashes = batch.key_hashes
    assert hashes is not None, "only a keyed input is sorted"
    run_count = int(np.count_nonzero(hashes[1:] != hashes[:-1])) + 1
    return run_count * _RUN_MIN <= batch.num_rows


class PlainProcessingOperator(_ProcessingOperator):
    """Base without keys: no keyed state and no timers."""

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        self._scope = EntryScope()
        self._collector = ResultCollector(context)
        self._record_context = RecordContext(ClockTimerService(self))
        self._open_function(None)


class FiringTimerContext(MovingContext, Protocol):
    """A context that is moved from timer to timer."""

    domain: TimeDomain


class KeyedProcessingOperator(_ProcessingOperator, TimedOperator):
    """Base with keys: keyed state, and timers that call `on_timer` with `_firing_context`."""

    _firing_context: FiringTimerContext

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        self._has_runs_of_keys = self._is_batch
        timer_service = KeyedTimerService(self._timers)
        self._record_context = KeyedRecordContext(timer_service, self._scope)
        self._firing_context = FiringContext(timer_service, self._scope)
        self._open_function(self._backend)

    def _process_rows(
        self, call: ElementFunction, context: MovingContext, batch: RecordBatch, output: Output
    ) -> None:
        self._backend.begin_batch(batch.num_rows)
        super()._process_rows(call, context, batch, output)
        self._backend.end_batch()

    def _keys(self, batch: RecordBatch) -> Iterable[Any]:
        return self._backend.event_clock.along(_keys_of(batch), batch.timestamps)

    def _on_event_time(self, time_ms: int, key: Any, namespace: Any) -> None:
        self._fire(TimeDomain.EVENT_TIME, time_ms, time_ms)

    def _on_processing_time(self, time_ms: int, key: Any, namespace: Any) -> None:
        self._fire(TimeDomain.PROCESSING_TIME, time_ms, MIN_TIMESTAMP)

    def _fire(self, domain: TimeDomain, time_ms: int, result_timestamp: int) -> None:
        context = self._firing_context
        context.domain = domain
        context.current_timestamp = time_ms
        results = self._function.on_timer(time_ms, context)
        self._collector.add(results, result_timestamp, self.context.output, "on_timer")


class ProcessOperator(PlainProcessingOperator, OneInputOperator):
    """Operator of a ProcessFunction."""

    def process_batch(self, batch: RecordBatch, output: Output) -> None:
        self._process_rows(self._function.process_element, self._record_context, batch, output)


class KeyedProcessOperator(KeyedProcessingOperator, OneInputOperator):
    """Operator of a KeyedProcessFunction."""

    def process_batch(self, batch: RecordBatch, output: Output) -> None:
        self._process_rows(self._function.process_element, self._record_context, batch, output)


class CoProcessOperator(PlainProcessingOperator, TwoInputOperator):
    """Operator of a CoProcessFunction."""

    def process_batch1(self, batch: RecordBatch, output: Output) -> None:
        self._process_rows(self._function.process_element1, self._record_context, batch, output)

    def process_batch2(self, batch: RecordBatch, output: Output) -> None:
        self._process_rows(self._function.process_element2, self._record_context, batch, output)


class KeyedCoProcessOperator(KeyedProcessingOperator, TwoInputOperator):
    """Operator of a KeyedCoProcessFunction: state and timers of a key serve both inputs."""

    def process_batch1(self, batch: RecordBatch, output: Output) -> None:
        self._process_rows(self._function.process_element1, self._record_context, batch, output)

    def process_batch2(self, batch: RecordBatch, output: Output) -> None:
        self._process_rows(self._function.process_element2, self._record_context, batch, output)

    def process_interleaved(
        self,
        input_numbers: InputNumbers,
        batch1: RecordBatch,
        batch2: RecordBatch,
        output: Output,
    ) -> None:
        call = of_either(self._function.process_element1, self._function.process_element2)
        batch = interleaved(input_numbers, batch1, batch2)
        self._process_rows(call, self._record_context, batch, output)
