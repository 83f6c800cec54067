"""What a window holds and what its function makes of it: one value folded as records come, or the list of records.

Source: Flink InternalWindowFunction and its variants.
"""

from collections.abc import Callable, Iterable
from typing import Any

from headrace.core.types.type_info import PickledBytesTypeInfo
from headrace.functions.record import AggregateFunction
from headrace.functions.specs import WindowSpec
from headrace.functions.state import AggregatingStateDescriptor, ReducingStateDescriptor
from headrace.functions.window_functions import (
    AllWindowFunction,
    ProcessAllWindowFunction,
    ProcessWindowFunction,
    WindowFunction,
)
from headrace.functions.windows import Window
from headrace.operators.user_code import method_of

_ANY = PickledBytesTypeInfo()


class _Records(AggregateFunction):
    """Keeps every record, None too, which a list state would refuse."""

    def create_accumulator(self) -> list[Any]:
        return []

    def add(self, value: Any, accumulator: list[Any]) -> list[Any]:
        accumulator.append(value)
        return accumulator

    def get_result(self, accumulator: list[Any]) -> list[Any]:
        return list(accumulator)

    def merge(self, acc_a: list[Any], acc_b: list[Any]) -> list[Any]:
        acc_a.extend(acc_b)
        return acc_a


def contents_descriptor(spec: WindowSpec) -> AggregatingStateDescriptor | ReducingStateDescriptor:
    """Return the state in which a window keeps its contents; read, it gives None for a window without any."""
    incremental = spec.incremental
    if incremental is None:
        return AggregatingStateDescriptor("window-contents", _Records(), _ANY)
    if isinstance(incremental, AggregateFunction):
        return AggregatingStateDescriptor("window-contents", incremental, _ANY)
    return ReducingStateDescriptor("window-contents", method_of(incremental, "reduce"), _ANY)


WindowCall = Callable[[Any, Window, Iterable[Any], Any], Any]
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
