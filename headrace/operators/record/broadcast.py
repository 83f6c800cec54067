"""Operators around (Keyed)BroadcastProcessFunction: a data stream, and a broadcast one that feeds shared states.

Input 0 is the data stream, which only reads those states. Input 1 is the broadcast stream, whose records every subtask
gets, and which writes the states. Source: Flink CoBroadcastWithNonKeyedOperator, CoBroadcastWithKeyedOperator.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NoReturn

from headrace.core.record_batch import RecordBatch
from headrace.functions.process import (
    BaseBroadcastProcessFunction,
    KeyedBroadcastProcessFunction,
    TimeDomain,
    TimerService,
)
from headrace.functions.specs.operator_specs import BroadcastProcessSpec, KeyedBroadcastProcessSpec
from headrace.functions.state import (
    BroadcastState,
    MapStateDescriptor,
    ReadOnlyBroadcastState,
    StateDescriptor,
)
from headrace.operators.record.process import KeyedProcessingOperator, PlainProcessingOperator
from headrace.operators.runtime.contexts import (
    ClockTimerService,
    KeyedTimerService,
    TimestampedContext,
)
from headrace.operators.runtime.operator import OperatorContext, Output, TwoInputOperator
from headrace.state.backend import NO_KEY, EntryScope, KeyedStateBackend, StateAccessError
from headrace.state.operator_state_backend import OperatorStateBackend


class ReadOnlyBroadcastView(ReadOnlyBroadcastState[Any, Any]):
    """Read-only view of a broadcast state, for the data side.

    Mutable values are not protected: changing one in place is a write that other subtasks do not see.
    """

    def __init__(self, name: str, state: BroadcastState[Any, Any]) -> None:
        self._name = name
        self._state = state

    def get(self, key: Any) -> Any:
        return self._state.get(key)

    def contains(self, key: Any) -> bool:
        return self._state.contains(key)

    def items(self) -> Iterable[tuple[Any, Any]]:
        return self._state.items()

    def keys(self) -> Iterable[Any]:
        return self._state.keys()

    def values(self) -> Iterable[Any]:
        return self._state.values()

    def is_empty(self) -> bool:
        return self._state.is_empty()

    def put(self, key: Any, value: Any) -> NoReturn:
        self._refuse()

    def put_all(self, dict_value: Mapping[Any, Any]) -> NoReturn:
        self._refuse()

    def remove(self, key: Any) -> NoReturn:
        self._refuse()

    def clear(self) -> NoReturn:
        self._refuse()

    def __setitem__(self, key: Any, value: Any) -> NoReturn:
        self._refuse()

    def __delitem__(self, key: Any) -> NoReturn:
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise StateAccessError(
            f"broadcast state '{self._name}' can only be read here, because each subtask sees different records: "
            f"write it in process_broadcast_element"
        )


class BroadcastStates:
    """The declared broadcast states by name, for writing and as read-only views."""

    def __init__(
        self, descriptors: Iterable[MapStateDescriptor], operator_state: OperatorStateBackend
    ) -> None:
        self._writable = {
            descriptor.get_name(): operator_state.get_broadcast_state(descriptor)
            for descriptor in descriptors
        }
        self._views = {
            name: ReadOnlyBroadcastView(name, state) for name, state in self._writable.items()
        }

    def writable(self, descriptor: MapStateDescriptor) -> BroadcastState[Any, Any]:
        """Return the state for the broadcast side; StateAccessError if none of that name was declared."""
        return self._writable[self._declared(descriptor)]

    def read_only(self, descriptor: MapStateDescriptor) -> ReadOnlyBroadcastState[Any, Any]:
        """Return the view for the data side; StateAccessError if none of that name was declared."""
        return self._views[self._declared(descriptor)]

    def _declared(self, descriptor: MapStateDescriptor) -> str:
        name = descriptor.get_name()
        if name not in self._writable:
            raise StateAccessError(
                f"there is no broadcast state '{name}': pass its descriptor to broadcast(...), which was called with "
                f"those of "
                f"{', '.join(map(repr, self._writable))}"
            )
        return name


class _Clocks(TimestampedContext):
    """Base of all contexts: their clocks."""

    def __init__(self, timer_service: TimerService, states: BroadcastStates) -> None:
        self._timer_service = timer_service
        self._states = states

    def current_processing_time(self) -> int:
        return self._timer_service.current_processing_time()

    def current_watermark(self) -> int:
        return self._timer_service.current_watermark()


class _DataContext(_Clocks, BaseBroadcastProcessFunction.ReadOnlyContext):
    """Context of a record of the data stream."""

    def get_broadcast_state(
        self, state_descriptor: MapStateDescriptor
    ) -> ReadOnlyBroadcastState[Any, Any]:
        return self._states.read_only(state_descriptor)


class _BroadcastContext(_Clocks, BaseBroadcastProcessFunction.Context):
    """Context of a broadcast record."""

    def get_broadcast_state(self, state_descriptor: MapStateDescriptor) -> BroadcastState[Any, Any]:
        return self._states.writable(state_descriptor)


class _KeyedDataContext(_DataContext, KeyedBroadcastProcessFunction.ReadOnlyContext):
    """Context of a record of a keyed data stream."""

    def __init__(
        self, timer_service: TimerService, states: BroadcastStates, scope: EntryScope
    ) -> None:
        super().__init__(timer_service, states)
        self._scope = scope

    def timer_service(self) -> TimerService:
        return self._timer_service

    def get_current_key(self) -> Any:
        return self._scope.entry


class _FiringContext(_KeyedDataContext, KeyedBroadcastProcessFunction.OnTimerContext):
    """Context of a timer that fires."""

    domain = TimeDomain.EVENT_TIME

    def time_domain(self) -> TimeDomain:
        return self.domain


class _KeyedBroadcastContext(_BroadcastContext, KeyedBroadcastProcessFunction.Context):
    """Context of a broadcast record if the data stream is keyed."""

    def __init__(
        self, timer_service: TimerService, states: BroadcastStates, backend: KeyedStateBackend
    ) -> None:
        super().__init__(timer_service, states)
        self._backend = backend

    def apply_to_keyed_state(
        self, state_descriptor: StateDescriptor, function: Callable[[Any, Any], object]
    ) -> None:
        scope = self._backend.key_scope
        handle = self._backend.get_state(state_descriptor, scope)
        try:
            for key in self._backend.keys_of(state_descriptor):
                scope.entry = key
                function(key, handle)
        finally:
            scope.entry = NO_KEY


class BroadcastProcessOperator(PlainProcessingOperator, TwoInputOperator):
    """Operator of a BroadcastProcessFunction."""

    def __init__(self, spec: BroadcastProcessSpec) -> None:
        super().__init__(spec)
        self._descriptors = spec.descriptors

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        states = BroadcastStates(self._descriptors, self._operator_state)
        clocks = ClockTimerService(self)
        self._data_context = _DataContext(clocks, states)
        self._broadcast_context = _BroadcastContext(clocks, states)

    def process_batch1(self, batch: RecordBatch, output: Output) -> None:
        self._process_rows(self._function.process_element, self._data_context, batch, output)

    def process_batch2(self, batch: RecordBatch, output: Output) -> None:
        call = self._function.process_broadcast_element
        self._process_rows(call, self._broadcast_context, batch, output)


class KeyedBroadcastProcessOperator(KeyedProcessingOperator, TwoInputOperator):
    """Operator of a KeyedBroadcastProcessFunction: keys, keyed state and timers belong to the data side."""

    def __init__(self, spec: KeyedBroadcastProcessSpec) -> None:
        super().__init__(spec)
        self._descriptors = spec.descriptors

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        states = BroadcastStates(self._descriptors, self._operator_state)
        timers = KeyedTimerService(self._timers)
        self._data_context = _KeyedDataContext(timers, states, self._scope)
        self._firing_context = _FiringContext(timers, states, self._scope)
        self._broadcast_context = _KeyedBroadcastContext(timers, states, self._backend)

    def process_batch1(self, batch: RecordBatch, output: Output) -> None:
        self._process_rows(self._function.process_element, self._data_context, batch, output)

    def process_batch2(self, batch: RecordBatch, output: Output) -> None:
        call = self._function.process_broadcast_element
        self._process_rows(call, self._broadcast_context, batch, output)
