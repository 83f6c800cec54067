"""How far apart two records are: DeltaFunction, and the trigger that fires once they are too far apart."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from headrace.core.types.type_info import TypeInformation, Types
from headrace.functions.state import ValueStateDescriptor
from headrace.functions.triggers import Trigger, TriggerContext, TriggerResult
from headrace.functions.windows import Window

T = TypeVar("T")


class DeltaFunction(ABC, Generic[T]):
    """Measures the distance between two records. A callable of the two is taken wherever this class is."""

    @abstractmethod
    def get_delta(self, old_data_point: T, new_data_point: T) -> float:
        """Return how far `new_data_point` is from `old_data_point`."""


Delta = DeltaFunction[Any] | Callable[[Any, Any], float]


def delta_between(function: Delta) -> Callable[[Any, Any], float]:
    """Return the measure as a callable of (old, new); TypeError where it is neither kind."""
    if isinstance(function, DeltaFunction):
        return function.get_delta
    if not callable(function):
        raise TypeError(f"a DeltaFunction or a callable of two records is needed, not {function!r}")
    return function


def shown_delta(function: Delta) -> str:
    """Return what plans call the function."""
    return getattr(function, "__name__", type(function).__name__)


class DeltaTrigger(Trigger[T, Window]):
    """Fires with the record that is further than `threshold` from the one it fired with last, or from the first.

    Keeps the contents, and cannot be used where windows merge.
    """

    def __init__(
        self, threshold: float, delta_function: Delta, type_info: TypeInformation | None = None
    ) -> None:
        """`type_info` is the type of the records, which are kept in state; left out, they are pickled."""
        delta_between(delta_function)
        self.threshold = threshold
        self.delta_function = delta_function
        record_type = Types.PICKLED_BYTE_ARRAY() if type_info is None else type_info
        self._last = ValueStateDescriptor("last-element", record_type)

    @staticmethod
    def of(
        threshold: float, delta_function: Delta, type_info: TypeInformation | None = None
    ) -> "DeltaTrigger[Any]":
        return DeltaTrigger(threshold, delta_function, type_info)

    def on_element(
        self, element: T, timestamp: int, window: Window, ctx: TriggerContext
    ) -> TriggerResult:
        state = ctx.get_partitioned_state(self._last)
        last = state.value()
        if last is None:
            state.update(element)
            return TriggerResult.CONTINUE
        if not delta_between(self.delta_function)(last, element) > self.threshold:
            return TriggerResult.CONTINUE
        state.update(element)
        return TriggerResult.FIRE

    def on_processing_time(self, time: int, window: Window, ctx: TriggerContext) -> TriggerResult:
        return TriggerResult.CONTINUE

    def on_event_time(self, time: int, window: Window, ctx: TriggerContext) -> TriggerResult:
        return TriggerResult.CONTINUE

    def clear(self, window: Window, ctx: TriggerContext) -> None:
        ctx.get_partitioned_state(self._last).clear()

    def __repr__(self) -> str:
        return f"DeltaTrigger({shown_delta(self.delta_function)}, {self.threshold})"
