"""Contents of windows, one folded value or the list of records, and the calls of window functions on them.

Also the contexts that window operators pass to assigners, triggers, evictors and window functions.
Source: Flink InternalWindowFunction and its variants, EvictingWindowOperator.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from functools import reduce
from typing import Any, Final

from headrace.core.types.record_copies import private_copy
from headrace.core.types.type_info import RowTypeInfo, TypeInformation, Types
from headrace.functions.evictors import Evictor, EvictorContext, TimestampedValue
from headrace.functions.process import (
    AllWindowFunction,
    KeyedWindowContext,
    ProcessAllWindowFunction,
    ProcessWindowFunction,
    TimeDomain,
    WindowFunction,
)
from headrace.functions.record import AggregateFunction
from headrace.functions.runtime_context import KeyedStateStore, RuntimeContext, UserMetricGroup
from headrace.functions.specs.operator_specs import WindowSpec
from headrace.functions.state import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
)
from headrace.functions.windowing.assigners import WindowAssignerContext
from headrace.functions.windowing.triggers import OnMergeContext
from headrace.functions.windows import Window
from headrace.operators.runtime.contexts import BackendStateStore, NoStateStore
from headrace.operators.runtime.internal_timer_service import InternalTimerService
from headrace.operators.runtime.record_state import (
    RecordsDescriptor,
    own_state,
    record_in,
    refused_fold,
    row_around,
)
from headrace.operators.runtime.user_code import method_of
from headrace.state.backend import KeyedStateBackend, StateAccessError

CONTENTS: Final = "window-contents"
"""Name of the state in snapshots."""
EmitElements = Callable[[Window, Sequence[Any]], None]
"""Function that calls the user's function with the elements of a firing window.

Consumes all results before it returns.
"""
WindowCall = Callable[[Any, Window, Sequence[Any], Any], Any]
"""(key, window, elements, context) -> results, an iterable or None."""


class WindowContents(ABC):
    """The contents of all windows; `add`, `fire` and `clear` use the namespace that is current in the backend."""

    @abstractmethod
    def add(self, value: Any, timestamp: int) -> None:
        """Add a record."""

    @abstractmethod
    def fire(self, window: Window, state_window: Window, emit: EmitElements) -> None:
        """Emit the contents, if any; `state_window` is the current namespace, which `emit` may change."""

    @abstractmethod
    def merge(self, target: Window, sources: Sequence[Window]) -> None:
        """Move the current key's contents of `sources` into `target`."""

    @abstractmethod
    def clear(self) -> None:
        """Delete the contents."""


class ContentsInOneState(WindowContents):
    """Base of contents that are in one state."""

    def __init__(
        self, descriptor: StateDescriptor, backend: KeyedStateBackend, operator_name: str
    ) -> None:
        self._descriptor = descriptor
        self._backend = backend
        self._operator_name = operator_name
        self._state: Any = own_state(backend, descriptor, backend.window_scope, operator_name)

    def merge(self, target: Window, sources: Sequence[Window]) -> None:
        self._backend.merge_namespaces(self._descriptor, target, sources)

    def clear(self) -> None:
        self._state.clear()


class ListedContents(ContentsInOneState):
    """Keeps the records themselves, with the stream's type."""

    def __init__(
        self, record_type: TypeInformation, backend: KeyedStateBackend, operator_name: str
    ) -> None:
        super().__init__(RecordsDescriptor(CONTENTS, record_type), backend, operator_name)

    def add(self, value: Any, timestamp: int) -> None:
        self._state.add(value)

    def fire(self, window: Window, state_window: Window, emit: EmitElements) -> None:
        records = self._state.get()
        if records:
            emit(window, records)


class FoldedContents(ContentsInOneState):
    """Keeps the fold of the records: of the stream's type if they are reduced, else of the accumulator's."""

    def __init__(
        self,
        function: Any,
        record_type: TypeInformation,
        accumulator_type: TypeInformation,
        backend: KeyedStateBackend,
        operator_name: str,
    ) -> None:
        descriptor: StateDescriptor
        if isinstance(function, AggregateFunction):
            descriptor = AggregatingStateDescriptor(CONTENTS, function, accumulator_type)
        else:
            reduce_function = method_of(function, "reduce")
            descriptor = ReducingStateDescriptor(CONTENTS, reduce_function, record_type)
        super().__init__(descriptor, backend, operator_name)
        self._function = function

    def add(self, value: Any, timestamp: int) -> None:
        try:
            self._state.add(value)
        except StateAccessError as error:
            raise self._refused(error, is_input=self._state.get() is None) from None

    def fire(self, window: Window, state_window: Window, emit: EmitElements) -> None:
        result = self._state.get()
        if result is not None:
            emit(window, [result])

    def merge(self, target: Window, sources: Sequence[Window]) -> None:
        try:
            super().merge(target, sources)
        except StateAccessError as error:
            raise self._refused(error, is_input=False) from None

    def _refused(self, error: StateAccessError, *, is_input: bool) -> Exception:
        return refused_fold(error, CONTENTS, self._function, self._operator_name, is_input=is_input)


class TimedRecords:
    """Stores a record with its timestamp as a row, which has the kind of the record."""

    def __init__(self, record_type: TypeInformation) -> None:
        self.row_type = RowTypeInfo([record_type, Types.LONG()], ["value", "timestamp"])

    def row_of(self, value: Any, timestamp: int) -> Any:
        """Return the row to store."""
        return row_around(value, self.row_type.field_names, (value, timestamp))

    def value_of(self, row: Any) -> TimestampedValue:
        """Return the record with its timestamp."""
        return TimestampedValue(record_in(row, 0), row[1])


class EvictedContents(ContentsInOneState):
    """Keeps records with timestamps for an evictor, and folds them at each firing if `incremental` is set.

    If nothing is left to reduce there is no result; an aggregate of nothing is that of its empty accumulator.
    """

    def __init__(
        self,
        incremental: Any,
        records: TimedRecords,
        backend: KeyedStateBackend,
        operator_name: str,
        evictor: Evictor[Any, Any],
        context: EvictorContext,
    ) -> None:
        super().__init__(ListStateDescriptor(CONTENTS, records.row_type), backend, operator_name)
        self._incremental = incremental
        self._records = records
        self._evictor = evictor
        self._context = context

    def add(self, value: Any, timestamp: int) -> None:
        self._state.add(self._records.row_of(value, timestamp))

    def fire(self, window: Window, state_window: Window, emit: EmitElements) -> None:
        held = list(map(self._records.value_of, self._state.get()))
        if not held:
            return
        self._evictor.evict_before(held, len(held), window, self._context)
        elements = self._elements([one.value for one in held])
        if elements is not None:
            emit(window, elements)
        self._evictor.evict_after(held, len(held), window, self._context)
        self._backend.set_current_namespace(state_window)
        self._state.update([self._records.row_of(*one) for one in held])

    def _elements(self, values: list[Any]) -> Sequence[Any] | None:
        incremental = self._incremental
        if incremental is None:
            return values
        if isinstance(incremental, AggregateFunction):
            accumulator = incremental.create_accumulator()
            for value in values:
                accumulator = incremental.add(value, accumulator)
            return [incremental.get_result(accumulator)]
        if not values:
            return None
        # Copies, as the function may change the older of two values, and the next firing reduces them anew.
        return [reduce(method_of(incremental, "reduce"), map(private_copy, values))]


def window_call(spec: WindowSpec) -> WindowCall:
    """Return a call of the window function with a window's elements, for any kind of function."""
    function: Any = spec.window_function
    match function:
        case None:
            return lambda key, window, elements, context: elements
        case WindowFunction():
            return lambda key, window, elements, context: function.apply(key, window, elements)
        case AllWindowFunction():
            return lambda key, window, elements, context: function.apply(window, elements)
        case ProcessWindowFunction():
            return lambda key, window, elements, context: function.process(key, context, elements)
        case ProcessAllWindowFunction():
            return lambda key, window, elements, context: function.process(context, elements)
        case _:
            raise AssertionError(f"{function!r} is not a window function")


class AssignerContext(WindowAssignerContext):
    """Context of assigners: the clock, and keyed state."""

    def __init__(self, timers: InternalTimerService, runtime_context: RuntimeContext) -> None:
        self._timers = timers
        self._runtime_context = runtime_context

    def get_current_processing_time(self) -> int:
        return self._timers.current_processing_time_ms()

    def get_runtime_context(self) -> RuntimeContext:
        return self._runtime_context


class _WindowClocks:
    """Clocks and metrics, for the contexts of evictors and triggers."""

    def __init__(self, timers: InternalTimerService, metrics: UserMetricGroup) -> None:
        self._timers = timers
        self._metrics = metrics

    def get_current_processing_time(self) -> int:
        return self._timers.current_processing_time_ms()

    def get_current_watermark(self) -> int:
        return self._timers.current_watermark_ms

    def get_metric_group(self) -> UserMetricGroup:
        return self._metrics


class WindowEvictorContext(_WindowClocks, EvictorContext):
    """Context of evictors: clocks and metrics."""


class WindowTriggerContext(_WindowClocks, OnMergeContext):
    """Context of triggers: timers and state of `window` under the current key; `merged`: windows merged into it."""

    window: Window
    merged: Collection[Window] = ()

    def __init__(
        self, backend: KeyedStateBackend, timers: InternalTimerService, metrics: UserMetricGroup
    ) -> None:
        super().__init__(timers, metrics)
        self._backend = backend

    def register_processing_time_timer(self, time: int) -> None:
        self._timers.register(TimeDomain.PROCESSING_TIME, time, self.window)

    def register_event_time_timer(self, time: int) -> None:
        self._timers.register(TimeDomain.EVENT_TIME, time, self.window)

    def delete_processing_time_timer(self, time: int) -> None:
        self._timers.delete(TimeDomain.PROCESSING_TIME, time, self.window)

    def delete_event_time_timer(self, time: int) -> None:
        self._timers.delete(TimeDomain.EVENT_TIME, time, self.window)

    def get_partitioned_state(self, state_descriptor: StateDescriptor) -> Any:
        self._backend.set_current_namespace(self.window)
        return self._backend.get_state(state_descriptor, self._backend.window_scope)

    def merge_partitioned_state(self, state_descriptor: StateDescriptor) -> None:
        self._backend.merge_namespaces(state_descriptor, self.window, list(self.merged))


class WindowFunctionContext(KeyedWindowContext[Window]):
    """Context of window functions: `current_window` under the current key."""

    current_window: Window

    def __init__(
        self, backend: KeyedStateBackend, timers: InternalTimerService, is_merging: bool
    ) -> None:
        self._timers = timers
        self._global_state = BackendStateStore(backend, backend.key_scope)
        self._window_state: KeyedStateStore
        if is_merging:
            self._window_state = NoStateStore(
                "merging windows have no state of their own: use global_state()"
            )
        else:
            self._window_state = BackendStateStore(backend, backend.window_scope)

    def window(self) -> Window:
        return self.current_window

    def current_processing_time(self) -> int:
        return self._timers.current_processing_time_ms()

    def current_watermark(self) -> int:
        return self._timers.current_watermark_ms

    def window_state(self) -> KeyedStateStore:
        return self._window_state

    def global_state(self) -> KeyedStateStore:
        return self._global_state
