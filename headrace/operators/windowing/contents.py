"""What a window holds and what its function makes of it: one value folded as records come, or the list of records.

Source: Flink InternalWindowFunction and its variants, EvictingWindowOperator.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import reduce
from itertools import starmap
from typing import Any

from headrace.core.types.record_copies import private_copy
from headrace.core.types.type_info import PickledBytesTypeInfo
from headrace.functions.evictors import Evictor, EvictorContext, TimestampedValue
from headrace.functions.record import AggregateFunction
from headrace.functions.state import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
)
from headrace.functions.window_functions import (
    AllWindowFunction,
    ProcessAllWindowFunction,
    ProcessWindowFunction,
    WindowFunction,
)
from headrace.functions.window_specs import WindowSpec
from headrace.functions.windows import Window
from headrace.operators.user_code import method_of
from headrace.state.backend import KeyedStateBackend

_ANY = PickledBytesTypeInfo()
_STATE_NAME = "window-contents"


class _RecordsDescriptor(ListStateDescriptor):
    """Every record, None too."""

    takes_none = True


EmitElements = Callable[[Window, Sequence[Any]], None]
"""Hands the elements of a window that fires to its function, and takes all of the results before it returns."""


class WindowContents(ABC):
    """The contents of all windows; `add`, `fire` and `clear` are for the namespace that is current in the backend.

    `descriptor` names the state that merging windows move.
    """

    descriptor: StateDescriptor

    def __init__(self, descriptor: StateDescriptor, backend: KeyedStateBackend) -> None:
        self.descriptor = descriptor
        self._backend = backend
        self._state: Any = backend.get_state(descriptor, backend.window_scope)

    @abstractmethod
    def add(self, value: Any, timestamp: int) -> None:
        """Take a record in."""

    @abstractmethod
    def fire(self, window: Window, state_window: Window, emit: EmitElements) -> None:
        """Emit what there is, if anything; `state_window` is the current namespace, which `emit` may change."""

    def clear(self) -> None:
        """Drop everything."""
        self._state.clear()


class StreamedContents(WindowContents):
    """Without an evictor: the fold of the records, or with `incremental` None the records themselves."""

    def __init__(self, incremental: Any, backend: KeyedStateBackend) -> None:
        super().__init__(_descriptor(incremental), backend)
        self._is_folded = incremental is not None

    def add(self, value: Any, timestamp: int) -> None:
        self._state.add(value)

    def fire(self, window: Window, state_window: Window, emit: EmitElements) -> None:
        contents = self._state.get()
        if self._is_folded:
            if contents is not None:
                emit(window, [contents])
        elif contents:
            emit(window, contents)


class EvictedContents(WindowContents):
    """With an evictor: the records with their timestamps, folded anew at each firing if `incremental` is set.

    Where nothing is left to reduce there is no result; an aggregate of nothing is that of its empty accumulator.
    """

    def __init__(
        self,
        incremental: Any,
        backend: KeyedStateBackend,
        evictor: Evictor[Any, Any],
        context: EvictorContext,
    ) -> None:
        super().__init__(ListStateDescriptor(_STATE_NAME, _ANY), backend)
        self._incremental = incremental
        self._evictor = evictor
        self._context = context

    def add(self, value: Any, timestamp: int) -> None:
        self._state.add((value, timestamp))

    def fire(self, window: Window, state_window: Window, emit: EmitElements) -> None:
        held = list(starmap(TimestampedValue, self._state.get()))
        if not held:
            return
        self._evictor.evict_before(held, len(held), window, self._context)
        elements = self._elements([one.value for one in held])
        if elements is not None:
            emit(window, elements)
        self._evictor.evict_after(held, len(held), window, self._context)
        self._backend.set_current_namespace(state_window)
        self._state.update(map(tuple, held))

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


def _descriptor(incremental: Any) -> StateDescriptor:
    """Return the state in which a window keeps its contents."""
    if incremental is None:
        return _RecordsDescriptor(_STATE_NAME, _ANY)
    if isinstance(incremental, AggregateFunction):
        return AggregatingStateDescriptor(_STATE_NAME, incremental, _ANY)
    return ReducingStateDescriptor(_STATE_NAME, method_of(incremental, "reduce"), _ANY)


WindowCall = Callable[[Any, Window, Sequence[Any], Any], Any]
"""(key, window, elements, context) -> results, an iterable or None."""


def window_call(spec: WindowSpec) -> WindowCall:
    """Return how results are made of a window's elements, whichever kind of function was given."""
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
            raise AssertionError(f"{function!r} is no window function")
