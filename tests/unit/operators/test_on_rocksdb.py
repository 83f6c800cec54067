"""Operators with their state in RocksDB: the same output as on the heap, with failures in between."""

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from headrace.core.operator_spec import OperatorSpec
from headrace.core.types.type_info import TypeInformation, Types
from headrace.functions.evictors import CountEvictor
from headrace.functions.joins import ProcessJoinFunction
from headrace.functions.process import KeyedProcessFunction, WindowFunction
from headrace.functions.record import AggregateFunction
from headrace.functions.specs.operator_specs import (
    CoGroupSpec,
    IntervalJoinSpec,
    KeyedProcessSpec,
    ReduceSpec,
    WindowSpec,
)
from headrace.functions.state import ListStateDescriptor, MapStateDescriptor
from headrace.functions.windowing.assigners import EventTimeSessionWindows, TumblingEventTimeWindows
from headrace.testing.operator_harness import HarnessStep, OperatorHarness, Rows, WatermarkAt
from headrace.testing.operator_ways import (
    assert_same_at_other_parallelisms,
    assert_same_with_restarts,
)

PAIR = Types.TUPLE([Types.STRING(), Types.LONG()])
STEPS: Sequence[HarnessStep] = [
    Rows([("a", 1), ("b", 2), ("a", 3)], [1, 2, 3]),
    WatermarkAt(4),
    Rows([("b", 4), ("c", 5), ("a", 6)], [11, 12, 3]),
    Rows([("c", 7), ("c", 8)], [9, 25]),
    WatermarkAt(21),
    Rows([("a", 9)], [40]),
]


class _Sum(AggregateFunction):
    def create_accumulator(self) -> int:
        return 0

    def add(self, value: tuple[str, int], accumulator: int) -> int:
        return accumulator + value[1]

    def get_result(self, accumulator: int) -> Any:
        return ("sum", accumulator)

    def merge(self, acc_a: int, acc_b: int) -> int:
        return acc_a + acc_b


class _Timed(KeyedProcessFunction):
    """Keeps values in a list and a map, and emits both ten ms after each of them."""

    def open(self, runtime_context: Any) -> None:
        self.seen = runtime_context.get_list_state(ListStateDescriptor("seen", PAIR))
        descriptor = MapStateDescriptor("counts", Types.LONG(), Types.LONG())
        self.counts = runtime_context.get_map_state(descriptor)

    def process_element(self, value: Any, ctx: Any) -> None:
        self.seen.add(value)
        self.counts.put(value[1] % 2, (self.counts.get(value[1] % 2) or 0) + 1)
        ctx.timer_service().register_event_time_timer(ctx.timestamp() + 10)

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        yield (ctx.get_current_key(), sum(n for _, n in self.seen) + 1000 * len(self.counts.keys()))


class _Listed(WindowFunction[Any, Any, Any, Any]):
    def apply(self, key: Any, window: Any, inputs: Any) -> Any:
        yield (key, str((window.start, window.end, list(inputs))))


class _Near(ProcessJoinFunction[Any, Any, Any]):
    def process_element(self, left: Any, right: Any, ctx: Any) -> Any:
        yield left, right, ctx.get_timestamp()


def _together(first: Any, second: Any) -> Any:
    yield list(first), list(second)


_NO_TAGS = (None, None)


def _window(assigner: Any, incremental: Any, window_function: Any) -> WindowSpec:
    return WindowSpec(assigner, None, 5, None, incremental, window_function, is_keyed=True)


SPECS: dict[str, OperatorSpec] = {
    "reduce": ReduceSpec(lambda a, b: (a[0], a[1] + b[1])),
    "timers": KeyedProcessSpec(_Timed()),
    "tumbling lists": _window(TumblingEventTimeWindows(10, 0), None, _Listed()),
    "tumbling sums": _window(TumblingEventTimeWindows(10, 0), _Sum(), None),
    "sessions": _window(EventTimeSessionWindows(5), None, _Listed()),
    "evicting sessions": replace(
        _window(EventTimeSessionWindows(5), None, _Listed()), evictor=CountEvictor.of(2)
    ),
    "co-group": CoGroupSpec(TumblingEventTimeWindows(10, 0), None, None, 5, _NO_TAGS, _together),
    "interval join": IntervalJoinSpec(_Near(), -5, 20, _NO_TAGS),
}
_TWO_INPUTS = {"co-group", "interval join"}


@pytest.mark.slow
@pytest.mark.parametrize("name", SPECS)
def test_failures_and_other_parallelisms_change_nothing(name: str, tmp_path: Path) -> None:
    assert _outputs(name, tmp_path, "rocksdb") == _outputs(name, tmp_path, "hashmap")


def _outputs(name: str, tmp_path: Path, backend: str) -> list[Any]:
    settings = {
        "state.backend.type": backend,
        "state.backend.rocksdb.localdir": str(tmp_path),
        "execution.checkpointing.incremental": "true",
    }

    input_count = 2 if name in _TWO_INPUTS else 1
    steps = _dealt(STEPS, input_count)

    def create() -> OperatorHarness:
        return OperatorHarness(
            deepcopy(SPECS[name]),  # open puts handles into functions
            input_types=[PAIR] * input_count,
            keys=[_key] * input_count,
            key_type=_STRING,
            settings=settings,
        )

    if backend == "rocksdb":
        assert_same_with_restarts(create, steps, finishes=True)
    if name == "timers":  # each change of parallelism opens many databases
        assert_same_at_other_parallelisms(create, steps, finishes=True)
    harness = create()
    for step in steps:
        harness.perform(step)
    harness.finish()
    assert harness.output.rows
    return _without_order_of_ties(harness.output.main)


def _without_order_of_ties(output: list[Any]) -> list[Any]:
    """The output, where timers of one time fire in one order: which comes first depends on the backend."""
    runs = groupby(output, key=lambda element: (element[0], element[-1]))
    return [element for _, run in runs for element in sorted(run, key=repr)]


def _dealt(steps: Sequence[HarnessStep], input_count: int) -> list[HarnessStep]:
    """The steps, with their rows dealt to the inputs in turn."""
    return [
        replace(step, input_number=index % input_count) if isinstance(step, Rows) else step
        for index, step in enumerate(steps)
    ]


_STRING: TypeInformation = Types.STRING()


def _key(value: tuple[str, int]) -> str:
    return value[0]
