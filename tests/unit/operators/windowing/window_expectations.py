"""Expected results of windows, gaps and their functions, computed in plain Python."""

from collections.abc import Iterable
from typing import Any

from headrace.functions.process import ProcessWindowFunction, TimeDomain
from headrace.functions.windowing.assigners import SessionWindowTimeGapExtractor
from headrace.functions.windows import CountWindow, TimeWindow
from headrace.testing.operator_harness import (
    HarnessStep,
    OperatorHarness,
    Rows,
    TimeAt,
    WatermarkAt,
)
from tests.unit.operators.windowing.window_reference import WindowReference
from tests.unit.state.entries import total_entry_count

KEYS = [lambda value: value[0]]


START_MS = 100


class ShownContents(ProcessWindowFunction[Any, Any, Any, Any]):
    """(key, window, values in order), as the reference has it."""

    def process(self, key: Any, context: Any, elements: Iterable[Any]) -> Iterable[Any]:
        window = context.window()
        match window:
            case TimeWindow():
                label: tuple[Any, ...] = ("time", window.start, window.end)
            case CountWindow():
                label = ("count", window.id)
            case _:
                label = ("global",)
        yield key, label, tuple(elements)


class OwnGap(SessionWindowTimeGapExtractor):
    def extract(self, element: Any) -> int:
        return element[1] + 1


def expected(reference: WindowReference, steps: list[HarnessStep]) -> list[list[Any]]:
    """What the reference fires in each step, whatever the order: among timers of one time it is open."""
    found: list[list[Any]] = []
    for step in steps:
        match step:
            case Rows(values, timestamps):
                assert timestamps is not None
                fired = [
                    firing
                    for value, timestamp in zip(values, timestamps, strict=True)
                    for firing in reference.record(value[0], value, timestamp)
                ]
            case WatermarkAt(watermark):
                fired = reference.advance(watermark)
            case TimeAt(now):
                fired = reference.clock(now)
            case _:
                raise AssertionError(step)
        found.append(sorted(fired))
    return found


def assert_nothing_is_left(harness: OperatorHarness) -> None:
    operator: Any = harness.operator
    assert total_entry_count(operator._backend) == 0
    for domain in TimeDomain:
        assert operator._timers.timer_count(domain) == 0
