"""Contexts of user functions: of a record or timer, moved from one to the next, and of `open`.

`OperatorRuntimeContext` is the RuntimeContext that `open` is given; the others are those of process functions.
"""

from abc import abstractmethod
from typing import Any, NoReturn, cast

from headrace.core.elements import MIN_TIMESTAMP
from headrace.functions.process import (
    CoProcessFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    ProcessFunction,
    TimeDomain,
    TimerService,
)
from headrace.functions.runtime_context import (
    DistributedCache,
    ExternalResourceInfo,
    KeyedStateStore,
    RuntimeContext,
    UserMetricGroup,
)
from headrace.functions.state import (
    AggregatingState,
    AggregatingStateDescriptor,
    ListState,
    ListStateDescriptor,
    MapState,
    MapStateDescriptor,
    OperatorStateStore,
    ReducingState,
    ReducingStateDescriptor,
    StateDescriptor,
    ValueState,
    ValueStateDescriptor,
)
from headrace.graph.pipeline_options import CACHED_FILES, PYTHON_ARCHIVES, cached_files
from headrace.operators.runtime.internal_timer_service import InternalTimerService
from headrace.operators.runtime.operator import Operator, OperatorContext
from headrace.state.backend import EntryScope, KeyedStateBackend, StateAccessError


class KeyedTimerService(TimerService):
    """TimerService of a keyed operator: timers belong to the current key."""

    def __init__(self, timers: InternalTimerService) -> None:
        self._timers = timers

    def current_processing_time(self) -> int:
        return self._timers.current_processing_time_ms()

    def current_watermark(self) -> int:
        return self._timers.current_watermark_ms

    def register_processing_time_timer(self, timestamp: int) -> None:
        self._timers.register(TimeDomain.PROCESSING_TIME, timestamp)

    def register_event_time_timer(self, timestamp: int) -> None:
        self._timers.register(TimeDomain.EVENT_TIME, timestamp)

    def delete_processing_time_timer(self, timestamp: int) -> None:
        self._timers.delete(TimeDomain.PROCESSING_TIME, timestamp)

    def delete_event_time_timer(self, timestamp: int) -> None:
        self._timers.delete(TimeDomain.EVENT_TIME, timestamp)


class ClockTimerService(TimerService):
    """TimerService of an operator without keys: it returns the time and refuses timers."""

    def __init__(self, operator: Operator) -> None:
        self._operator = operator

    def current_processing_time(self) -> int:
        return self._operator.context.timers.now_ms()

    def current_watermark(self) -> int:
        return self._operator.current_watermark

    def register_processing_time_timer(self, timestamp: int) -> None:
        self._refuse()

    def register_event_time_timer(self, timestamp: int) -> None:
        self._refuse()

    def delete_processing_time_timer(self, timestamp: int) -> None:
        self._refuse()

    def delete_event_time_timer(self, timestamp: int) -> None:
        self._refuse()

    def _refuse(self) -> None:
        raise StateAccessError(
            "timers need a key: call key_by first and use a KeyedProcessFunction"
        )


class TimestampedContext:
    """Base of contexts of a record. `current_timestamp` is MIN_TIMESTAMP if it has none."""

    current_timestamp = MIN_TIMESTAMP

    def timestamp(self) -> int | None:
        """Return the record's timestamp, or None."""
        timestamp = self.current_timestamp
        return None if timestamp == MIN_TIMESTAMP else timestamp


class RecordContext(TimestampedContext, ProcessFunction.Context, CoProcessFunction.Context):
    """Context of a record on a stream without keys."""

    def __init__(self, timer_service: TimerService) -> None:
        self._timer_service = timer_service

    def timer_service(self) -> TimerService:
        return self._timer_service


class KeyedRecordContext(
    TimestampedContext, KeyedProcessFunction.Context, KeyedCoProcessFunction.Context
):
    """Context of a record on a keyed stream; the key is the state backend's."""

    def __init__(self, timer_service: TimerService, scope: EntryScope) -> None:
        self._timer_service = timer_service
        self._scope = scope

    def timer_service(self) -> TimerService:
        return self._timer_service

    def get_current_key(self) -> Any:
        return self._scope.entry


class FiringContext(
    KeyedRecordContext, KeyedProcessFunction.OnTimerContext, KeyedCoProcessFunction.OnTimerContext
):
    """Context of a timer that fires."""

    domain = TimeDomain.EVENT_TIME

    def time_domain(self) -> TimeDomain:
        return self.domain


class _StateStore(KeyedStateStore):
    """Base: every state comes from `_state`."""

    @abstractmethod
    def _state(self, descriptor: StateDescriptor) -> object:
        """Return the handle of a state."""

    def get_state(self, state_descriptor: ValueStateDescriptor) -> ValueState[Any]:
        return cast(ValueState[Any], self._state(state_descriptor))

    def get_list_state(self, state_descriptor: ListStateDescriptor) -> ListState[Any]:
        return cast(ListState[Any], self._state(state_descriptor))

    def get_map_state(self, state_descriptor: MapStateDescriptor) -> MapState[Any, Any]:
        return cast(MapState[Any, Any], self._state(state_descriptor))

    def get_reducing_state(self, state_descriptor: ReducingStateDescriptor) -> ReducingState[Any]:
        return cast(ReducingState[Any], self._state(state_descriptor))

    def get_aggregating_state(
        self, state_descriptor: AggregatingStateDescriptor
    ) -> AggregatingState[Any, Any]:
        return cast(AggregatingState[Any, Any], self._state(state_descriptor))


class BackendStateStore(_StateStore):
    """Keyed states of one scope of a backend: per key, or per key and window."""

    def __init__(self, backend: KeyedStateBackend, scope: EntryScope) -> None:
        self._backend = backend
        self._scope = scope

    def _state(self, descriptor: StateDescriptor) -> object:
        return self._backend.get_state(descriptor, self._scope)


class NoStateStore(_StateStore):
    """Store of functions that cannot have state: every access raises an error with the reason."""

    def __init__(self, reason: str) -> None:
        self._reason = reason

    def _state(self, descriptor: StateDescriptor) -> NoReturn:
        raise StateAccessError(f"state '{descriptor.get_name()}' is not available: {self._reason}")


class OperatorRuntimeContext(_StateStore, RuntimeContext):
    """RuntimeContext of a function; without a backend (a stream without keys), keyed state is an error.

    `operator_state` is None for key selectors, timestamp assigners and windows, which have no operator state.
    """

    def __init__(
        self,
        context: OperatorContext,
        backend: KeyedStateBackend | None,
        operator_state: OperatorStateStore | None = None,
    ) -> None:
        self._context = context
        self._backend = backend
        self._operator_state = operator_state

    def _state(self, descriptor: StateDescriptor) -> object:
        if self._backend is None:
            raise StateAccessError(
                f"state '{descriptor.get_name()}' is not available: keyed state needs a keyed stream, call key_by first"
            )
        return self._backend.get_state(descriptor, self._backend.key_scope)

    def get_task_name(self) -> str:
        return self._context.task_name

    def get_number_of_parallel_subtasks(self) -> int:
        return self._context.parallelism

    def get_max_number_of_parallel_subtasks(self) -> int:
        return self._context.max_parallelism

    def get_index_of_this_subtask(self) -> int:
        return self._context.subtask_index

    def get_attempt_number(self) -> int:
        return self._context.attempt_number

    def get_task_name_with_subtasks(self) -> str:
        return self._context.task_name_with_subtasks

    def get_job_parameter(self, key: str, default_value: str) -> str:
        return self._context.job_parameters.get(key, default_value)

    def get_distributed_cache(self) -> DistributedCache:
        # Their paths are on this host by now.
        settings = self._context.settings
        archives = settings.get_option(PYTHON_ARCHIVES).split(",")
        folders = (text.partition("#") for text in archives if text)
        return DistributedCache(
            {
                **{name: path for path, _, name in folders},
                **cached_files(settings.get_option(CACHED_FILES)),
            }
        )

    def get_external_resource_infos(self, resource_name: str) -> set[ExternalResourceInfo]:
        addresses = self._context.external_resources.get(resource_name, ())
        return {ExternalResourceInfo(address) for address in addresses}

    def get_metrics_group(self) -> UserMetricGroup:
        return self._context.metrics

    def get_operator_state_store(self) -> OperatorStateStore:
        if self._operator_state is None:
            raise StateAccessError(
                f"the functions of operator '{self._context.operator_name}' have no operator state: use a process, "
                f"map, flat_map or filter function for it"
            )
        return self._operator_state
