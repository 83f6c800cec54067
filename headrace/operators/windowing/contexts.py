"""Contexts of window operators: what assigners, triggers, evictors and window functions may ask and keep."""

from collections.abc import Collection
from typing import Any

from headrace.functions.assigners import WindowAssignerContext
from headrace.functions.evictors import EvictorContext
from headrace.functions.process import TimeDomain
from headrace.functions.runtime_context import KeyedStateStore, RuntimeContext, UserMetricGroup
from headrace.functions.state import StateDescriptor
from headrace.functions.triggers import OnMergeContext
from headrace.functions.window_functions import KeyedWindowContext
from headrace.functions.windows import Window
from headrace.operators.runtime_context import BackendStateStore, NoStateStore
from headrace.operators.timers import InternalTimerService
from headrace.state.backend import KeyedStateBackend


class AssignerContext(WindowAssignerContext):
    """For assigners: the clock, and keyed state."""

    def __init__(self, timers: InternalTimerService, runtime_context: RuntimeContext) -> None:
        self._timers = timers
        self._runtime_context = runtime_context

    def get_current_processing_time(self) -> int:
        return self._timers.current_processing_time_ms()

    def get_runtime_context(self) -> RuntimeContext:
        return self._runtime_context


class WindowEvictorContext(EvictorContext):
    """For evictors: clocks and metrics."""

    def __init__(self, timers: InternalTimerService, metrics: UserMetricGroup) -> None:
        self._timers = timers
        self._metrics = metrics

    def get_current_processing_time(self) -> int:
        return self._timers.current_processing_time_ms()

    def get_metric_group(self) -> UserMetricGroup:
        return self._metrics

    def get_current_watermark(self) -> int:
        return self._timers.current_watermark_ms


class WindowTriggerContext(OnMergeContext):
    """For triggers: timers and state of `window` under the current key; `merged` are the windows that become it."""

    window: Window
    merged: Collection[Window] = ()

    def __init__(
        self, backend: KeyedStateBackend, timers: InternalTimerService, metrics: UserMetricGroup
    ) -> None:
        self._backend = backend
        self._timers = timers
        self._metrics = metrics

    def get_current_processing_time(self) -> int:
        return self._timers.current_processing_time_ms()

    def get_metric_group(self) -> UserMetricGroup:
        return self._metrics

    def get_current_watermark(self) -> int:
        return self._timers.current_watermark_ms

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
    """For window functions, of `current_window` under the current key."""

    current_window: Window

    def __init__(
        self, backend: KeyedStateBackend, timers: InternalTimerService, is_merging: bool
    ) -> None:
        self._timers = timers
        self._global_state = BackendStateStore(backend, backend.key_scope)
        self._window_state: KeyedStateStore
        if is_merging:
            self._window_state = NoStateStore(
                "windows that merge have no state of their own, use global_state()"
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
