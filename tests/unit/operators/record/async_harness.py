"""The asynchronous operator in a harness, with calls that end when the test says so."""

from typing import Any

from headrace.core.types.type_info import TypeInformation
from headrace.functions.async_io import AsyncFunction, AsyncOutputMode, AsyncRetryStrategy
from headrace.functions.specs.operator_specs import AsyncWaitSpec
from headrace.operators.record.async_wait_operator import AsyncWaitOperator, CallsEnded
from headrace.testing.operator_harness import PICKLED, ManualCalls, OperatorHarness

ORDERED, UNORDERED = AsyncOutputMode
NO_RETRY = AsyncRetryStrategy.no_restart()


class Twice(AsyncFunction[Any, Any]):
    async def async_invoke(self, value: Any) -> list[Any]:
        return [value, value]


class Scripted(AsyncFunction[Any, Any]):
    """Gives for each value what its script says, call by call: a result, or an exception to raise."""

    def __init__(self, **script: list[Any]) -> None:
        self.script = script

    async def async_invoke(self, value: Any) -> list[Any]:
        outcome = self.script[value].pop(0)
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome


class Calls:
    """The ManualCalls of the operator that was made last."""

    def __init__(self) -> None:
        self.made: list[ManualCalls] = []

    def create(self, spec: AsyncWaitSpec) -> AsyncWaitOperator:
        return AsyncWaitOperator(spec, self._make)

    def _make(self, name: str, ended: CallsEnded) -> ManualCalls:
        self.made.append(ManualCalls(ended))
        return self.made[-1]

    @property
    def last(self) -> ManualCalls:
        return self.made[-1]


def async_harness(
    function: AsyncFunction[Any, Any],
    mode: AsyncOutputMode = ORDERED,
    *,
    capacity: int = 100,
    timeout_ms: int = 1000,
    retry_strategy: AsyncRetryStrategy[Any] = NO_RETRY,
    input_type: TypeInformation = PICKLED,
    is_immediate: bool = False,
    **options: Any,
) -> tuple[OperatorHarness, Calls]:
    calls = Calls()
    spec = AsyncWaitSpec(function, timeout_ms, capacity, mode, retry_strategy)
    background = (lambda: calls.last.finish_first()) if is_immediate else (lambda: False)
    harness = OperatorHarness(
        spec, input_types=[input_type], create=calls.create, background=background, **options
    )
    return harness, calls


def finish_call(harness: OperatorHarness, calls: Calls, index: int) -> None:
    calls.last.finish(index)
    harness.settle()
