"""Results without end, for one record, timer or window: they leave in pieces, until the task is stopped."""

from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest

from headrace.core.elements import CancelTaskException
from headrace.core.types.type_info import Types
from headrace.functions.process import (
    CoProcessFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    OutputTag,
    ProcessFunction,
    ProcessWindowFunction,
    WindowFunction,
)
from headrace.functions.specs.operator_specs import (
    CoProcessSpec,
    FlatMapSpec,
    KeyedCoProcessSpec,
    KeyedProcessSpec,
    ProcessSpec,
)
from headrace.functions.state import ValueStateDescriptor
from headrace.functions.windowing.assigners import TumblingEventTimeWindows
from headrace.operators.runtime.emission import EMIT_ROWS_MAX
from headrace.testing.operator_harness import PICKLED, OperatorHarness, Rows, WatermarkAt
from tests.unit.operators.window_specs import window_spec

KEY = [lambda value: "k"]
SIDE = OutputTag("side", Types.LONG())
UNREAD = OutputTag("unread")


class _Process(ProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Any:
        return count()


class _Keyed(KeyedProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Any:
        return count()


class _Timer(KeyedProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> None:
        ctx.timer_service().register_event_time_timer(10)

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        return count()


class _Connected(CoProcessFunction):
    def process_element1(self, value: Any, ctx: Any) -> Any:
        return count()

    def process_element2(self, value: Any, ctx: Any) -> None:
        raise AssertionError


class _KeyedConnected(KeyedCoProcessFunction):
    def process_element1(self, value: Any, ctx: Any) -> Any:
        return count()

    def process_element2(self, value: Any, ctx: Any) -> None:
        raise AssertionError


class _ProcessWindow(ProcessWindowFunction[Any, Any, Any, Any]):
    def process(self, key: Any, context: Any, elements: Any) -> Any:
        return count()


class _Window(WindowFunction[Any, Any, Any, Any]):
    def apply(self, key: Any, window: Any, inputs: Any) -> Any:
        return count()


def _window(function: Any) -> OperatorHarness:
    spec = window_spec(TumblingEventTimeWindows(10, 0), window_function=function)
    return OperatorHarness(spec, keys=KEY)


ENDLESS = {
    "flat_map": lambda: OperatorHarness(FlatMapSpec(lambda value: count())),
    "process": lambda: OperatorHarness(ProcessSpec(_Process())),
    "keyed process": lambda: OperatorHarness(KeyedProcessSpec(_Keyed()), keys=KEY),
    "on_timer": lambda: OperatorHarness(KeyedProcessSpec(_Timer()), keys=KEY),
    "connected": lambda: OperatorHarness(
        CoProcessSpec(_Connected()), input_types=(PICKLED, PICKLED)
    ),
    "keyed connected": lambda: OperatorHarness(
        KeyedCoProcessSpec(_KeyedConnected()), input_types=(PICKLED, PICKLED), keys=KEY * 2
    ),
    "process window": lambda: _window(_ProcessWindow()),
    "window": lambda: _window(_Window()),
}


def stop_after(harness: OperatorHarness, piece_count: int) -> None:
    """Have the task's cancellation seen once so many pieces have left."""

    def check() -> None:
        if len(harness.output.batches) >= piece_count:
            raise CancelTaskException("cancelled")

    harness.output.check_interrupted = check  # type: ignore[method-assign]


@pytest.mark.parametrize("kind", ENDLESS)
def test_results_without_end_leave_in_pieces_until_the_task_is_to_stop(kind: str) -> None:
    harness = ENDLESS[kind]()
    stop_after(harness, 3)
    with pytest.raises(CancelTaskException):
        harness.perform(Rows([1], [5]))
        harness.perform(WatermarkAt(100))
    assert [batch.num_rows for batch in harness.output.batches] == [EMIT_ROWS_MAX] * 3
    assert harness.output.rows == list(range(3 * EMIT_ROWS_MAX))


@pytest.mark.parametrize("tag", [SIDE, UNREAD])
def test_side_results_without_end_are_bounded_too(tag: OutputTag) -> None:
    class OnlySide(ProcessFunction):
        def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
            for number in count():
                yield tag, number

    harness = OperatorHarness(ProcessSpec(OnlySide()), side_types={"side": Types.LONG()})
    checks = iter(range(3))

    def check() -> None:
        if next(checks, None) is None:
            raise CancelTaskException("cancelled")

    harness.output.check_interrupted = check  # type: ignore[method-assign]
    with pytest.raises(CancelTaskException):
        harness.perform(Rows([1]))
    assert len(harness.output.side_rows("side")) == (3 * EMIT_ROWS_MAX if tag is SIDE else 0)


def test_state_and_order_are_the_same_as_without_pieces() -> None:
    class Many(KeyedProcessFunction):
        def open(self, runtime_context: Any) -> None:
            self.given = runtime_context.get_state(ValueStateDescriptor("given", Types.LONG()))

        def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
            for _ in range(value):
                number = self.given.value() or 0
                self.given.update(number + 1)
                yield number, ctx.get_current_key(), ctx.timestamp()
                if number % 3 == 0:
                    yield SIDE, number

    harness = OperatorHarness(KeyedProcessSpec(Many()), keys=KEY, side_types={"side": Types.LONG()})
    size = EMIT_ROWS_MAX + 10
    harness.perform(Rows([size, size, 1], [1, 2, 3]))
    total = 2 * size + 1
    times = [1] * size + [2] * size + [3]
    assert harness.output.rows == [(n, "k", times[n]) for n in range(total)]
    assert harness.output.side_rows("side") == list(range(0, total, 3))
    assert max(batch.num_rows for batch in harness.output.batches) == EMIT_ROWS_MAX
