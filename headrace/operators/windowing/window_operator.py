"""WindowOperator: any assigner, trigger, evictor and window function, one record at a time.

Source: Flink WindowOperator, EvictingWindowOperator, which define the order of steps for records, timers and merges.
"""

from abc import abstractmethod
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from headrace.core.elements import MAX_WATERMARK
from headrace.core.errors import USER_EXCEPTIONS
from headrace.core.record_batch import RecordBatch
from headrace.core.types.type_info import PickledBytesTypeInfo, TypeInformation
from headrace.functions.process import ProcessAllWindowFunction, ProcessWindowFunction, TimeDomain
from headrace.functions.specs.operator_specs import TwoStreamWindowSpec, WindowSpec
from headrace.functions.state import MapStateDescriptor
from headrace.functions.windowing.assigners import MergingWindowAssigner, WindowAssigner
from headrace.functions.windowing.triggers import Trigger, TriggerResult
from headrace.functions.windows import TIME_WINDOW_TYPE, TimeWindowSerializer, Window
from headrace.operators.runtime.contexts import OperatorRuntimeContext
from headrace.operators.runtime.emission import timestamps_of
from headrace.operators.runtime.operator import OneInputOperator, OperatorContext, Output
from headrace.operators.runtime.record_state import own_state
from headrace.operators.runtime.timed_operator import LateRecords, TimedOperator
from headrace.operators.runtime.user_code import close_function, open_function, user_error
from headrace.operators.windowing.merging_window_set import MergingWindowSet
from headrace.operators.windowing.window_contents import (
    AssignerContext,
    EvictedContents,
    FoldedContents,
    ListedContents,
    TimedRecords,
    WindowCall,
    WindowContents,
    WindowEvictorContext,
    WindowFunctionContext,
    WindowTriggerContext,
    window_call,
)

_WHOLE_STREAM = 0
"""The key of windows over a stream without keys."""


class WindowingOperator(TimedOperator):
    """Base: groups records by key and window, and calls the function with a group when the trigger fires.

    Contents, trigger state and the function's state are kept per (key, window) until the window's cleanup time.
    """

    is_per_record = True
    _merging: MergingWindowSet | None = None
    _is_function_open = False

    def __init__(self, spec: WindowSpec | TwoStreamWindowSpec, call: WindowCall) -> None:
        """Create the operator of a spec; `call` returns results for a window's contents."""
        self._functions = spec.user_functions()
        self._assigner: WindowAssigner[Any, Any] = spec.assigner
        self._trigger: Trigger[Any, Any] = spec.trigger or spec.assigner.get_default_trigger(None)
        self._evictor: Any = spec.evictor
        self._is_event_time = self._assigner.is_event_time()
        self._lateness_ms = spec.allowed_lateness_ms
        self._call = call
        self._clearing = [
            one
            for one in self._functions
            if isinstance(one, ProcessWindowFunction | ProcessAllWindowFunction)
        ]

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        backend = self._backend
        self._contents = self._create_contents()
        assigner = self._assigner
        is_merging = isinstance(assigner, MergingWindowAssigner)
        if isinstance(assigner, MergingWindowAssigner):
            window_type = _type_of_windows(assigner)
            descriptor = MapStateDescriptor("merging-window-set", window_type, window_type)
            mapping = own_state(backend, descriptor, backend.key_scope, context.operator_name)
            self._merging = MergingWindowSet(assigner, mapping)
        runtime_context = OperatorRuntimeContext(context, backend)
        self._assigner_context = AssignerContext(self._timers, runtime_context)
        self._trigger_context = WindowTriggerContext(backend, self._timers, context.metrics)
        self._function_context = WindowFunctionContext(backend, self._timers, is_merging)
        self._is_function_open = True
        for function in self._functions:
            open_function(function, runtime_context, context.operator_name)

    @abstractmethod
    def _create_contents(self) -> WindowContents:
        """Return the contents of windows."""

    def _evictor_context(self) -> WindowEvictorContext:
        return WindowEvictorContext(self._timers, self.context.metrics)

    def close(self) -> None:
        if self._is_function_open:
            self._is_function_open = False
            for function in self._functions:
                close_function(function, self.context.operator_name)

    @abstractmethod
    def _take_late(self, value: Any, timestamp: int) -> None:
        """Handle a record that is late for all its windows."""

    def _process_rows(
        self, batch: RecordBatch, keys: Sequence[Any], values: Iterable[Any], output: Output
    ) -> None:
        """Process the rows of `batch`, given as `keys` and `values`."""
        process = self._process_record if self._merging is None else self._process_merging
        scope = self._scope
        self._backend.begin_batch(batch.num_rows)
        timed_keys = self._backend.event_clock.along(keys, batch.timestamps)
        try:
            for key, value, timestamp in zip(timed_keys, values, timestamps_of(batch), strict=True):
                scope.entry = key
                process(value, timestamp)
        except USER_EXCEPTIONS as error:
            raise user_error(error, self.context.operator_name) from error
        self._backend.end_batch()
        self._collector.flush(output)

    def _process_record(self, value: Any, timestamp: int) -> None:
        is_skipped = True
        for window in self._assigner.assign_windows(value, timestamp, self._assigner_context):
            if not self._is_late(window):
                is_skipped = False
                self._add(value, timestamp, window, window)
        if is_skipped:
            self._skip(value, timestamp)

    def _process_merging(self, value: Any, timestamp: int) -> None:
        assert self._merging is not None
        is_skipped = True
        for assigned in self._assigner.assign_windows(value, timestamp, self._assigner_context):
            window = self._merging.add(assigned, self._on_merge)
            if self._is_late(window):
                self._merging.retire(window)
                continue
            is_skipped = False
            state_window = self._merging.state_window(window)
            assert state_window is not None
            self._add(value, timestamp, window, state_window)
        if is_skipped:
            self._skip(value, timestamp)

    def _add(self, value: Any, timestamp: int, window: Window, state_window: Window) -> None:
        self._backend.set_current_namespace(state_window)
        self._contents.add(value, timestamp)
        trigger_context = self._trigger_context
        trigger_context.window = window
        result = self._trigger.on_element(value, timestamp, window, trigger_context)
        if result is not TriggerResult.CONTINUE:
            self._obey(result, window, state_window)
        self._register_cleanup(window)

    def _skip(self, value: Any, timestamp: int) -> None:
        """Handle a record that no window accepted: it is late, or lies between sliding windows."""
        if (
            not self._is_event_time
            or timestamp + self._lateness_ms > self._timers.current_watermark_ms
        ):
            return
        self._take_late(value, timestamp)

    def _on_merge(
        self,
        window: Window,
        merged: Collection[Window],
        state_window: Window,
        sources: Sequence[Window],
    ) -> None:
        assert not self._is_late(window), (
            "a live window ends after the watermark, and so does the window that it grows into"
        )
        context = self._trigger_context
        context.window, context.merged = window, merged
        self._trigger.on_merge(window, context)
        for old in merged:
            context.window = old
            self._trigger.clear(old, context)
            self._delete_cleanup(old)
        self._contents.merge(state_window, sources)

    def _on_event_time(self, time_ms: int, key: Any, namespace: Any) -> None:
        self._on_timer(time_ms, namespace, is_event_time=True)

    def _on_processing_time(self, time_ms: int, key: Any, namespace: Any) -> None:
        self._on_timer(time_ms, namespace, is_event_time=False)

    def _on_timer(self, time_ms: int, window: Window, *, is_event_time: bool) -> None:
        state_window: Window | None = window
        if self._merging is not None:
            state_window = self._merging.state_window(window)
            if state_window is None:
                return  # the window became part of another one
        context = self._trigger_context
        context.window = window
        ask = self._trigger.on_event_time if is_event_time else self._trigger.on_processing_time
        result = ask(time_ms, window, context)
        if result is not TriggerResult.CONTINUE:
            self._obey(result, window, state_window)
        if is_event_time == self._is_event_time and time_ms == self._cleanup_time_ms(window):
            self._clear(window, state_window)

    def _obey(self, result: TriggerResult, window: Window, state_window: Window) -> None:
        self._backend.set_current_namespace(state_window)
        if result.is_fire():
            self._contents.fire(window, state_window, self._emit)
        if result.is_purge():
            self._backend.set_current_namespace(state_window)
            self._contents.clear()

    def _emit(self, window: Window, elements: Sequence[Any]) -> None:
        self._function_context.current_window = window
        self._backend.set_current_namespace(window)
        results = self._call(self._scope.entry, window, elements, self._function_context)
        self._collector.add(
            results, window.max_timestamp(), self.context.output, "the window function"
        )

    def _clear(self, window: Window, state_window: Window) -> None:
        """Delete everything that is stored for a window whose cleanup time has come."""
        self._backend.set_current_namespace(state_window)
        self._contents.clear()
        self._trigger.clear(window, self._trigger_context)
        for function in self._clearing:
            self._function_context.current_window = window
            self._backend.set_current_namespace(window)
            function.clear(self._function_context)
        if self._merging is not None:
            self._merging.retire(window)

    def _is_late(self, window: Window) -> bool:
        return (
            self._is_event_time
            and self._cleanup_time_ms(window) <= self._timers.current_watermark_ms
        )

    def _cleanup_time_ms(self, window: Window) -> int:
        lateness_ms = self._lateness_ms if self._is_event_time else 0
        return min(window.max_timestamp() + lateness_ms, MAX_WATERMARK)

    def _register_cleanup(self, window: Window) -> None:
        cleanup_time_ms = self._cleanup_time_ms(window)
        if cleanup_time_ms < MAX_WATERMARK:
            self._timers.register(self._time_domain, cleanup_time_ms, window)

    def _delete_cleanup(self, window: Window) -> None:
        self._timers.delete(self._time_domain, self._cleanup_time_ms(window), window)

    @property
    def _time_domain(self) -> TimeDomain:
        return TimeDomain.EVENT_TIME if self._is_event_time else TimeDomain.PROCESSING_TIME


class WindowOperator(WindowingOperator, OneInputOperator):
    """Windows over one stream, keyed or as a whole."""

    def __init__(self, spec: WindowSpec) -> None:
        super().__init__(spec, window_call(spec))
        self._is_keyed = spec.is_keyed
        self._late_tag_id = spec.late_tag_id
        self._incremental = spec.incremental
        self._accumulator_type: TypeInformation = spec.accumulator_type or PickledBytesTypeInfo()

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        self._late_records = LateRecords(context, self._collector, self._late_tag_id)

    def _create_contents(self) -> WindowContents:
        context, backend, incremental = self.context, self._backend, self._incremental
        name, record_type = context.operator_name, context.types.inputs[0].value_type
        if self._evictor is not None:
            records = TimedRecords(record_type)
            return EvictedContents(
                incremental, records, backend, name, self._evictor, self._evictor_context()
            )
        if incremental is None:
            return ListedContents(record_type, backend, name)
        return FoldedContents(incremental, record_type, self._accumulator_type, backend, name)

    def process_batch(self, batch: RecordBatch, output: Output) -> None:
        keys = batch.keys() if self._is_keyed else [_WHOLE_STREAM] * batch.num_rows
        self._process_rows(batch, keys, batch.rows(), output)

    def _take_late(self, value: Any, timestamp: int) -> None:
        self._late_records.take(value, timestamp)


def _type_of_windows(assigner: MergingWindowAssigner[Any, Any]) -> TypeInformation:
    """Return the type with which the assigner's windows are stored: only time windows have one."""
    if isinstance(assigner.get_window_serializer(), TimeWindowSerializer):
        return TIME_WINDOW_TYPE
    return PickledBytesTypeInfo()
