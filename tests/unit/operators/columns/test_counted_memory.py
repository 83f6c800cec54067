"""What operators on columns hold is counted while they hold it, about as large as it is."""

import tracemalloc
from collections.abc import Callable, Sequence

import pytest

from headrace.core.elements import MAX_WATERMARK
from headrace.core.operator_spec import OperatorSpec
from headrace.core.process.state_memory import columnar_state_bytes
from headrace.core.types.rows import Row
from headrace.core.types.type_info import RowTypeInfo, Types
from headrace.functions.specs.columnar_specs import ROWS as STOOD_FOR
from headrace.functions.specs.columnar_specs import (
    SLICE,
    EventTimeWindows,
    ExtremeRows,
    ExtremeRowsSpec,
    MapPartitionSpec,
)
from headrace.testing.operator_harness import HarnessStep, OperatorHarness, Rows, WatermarkAt
from tests.unit.operators.columns import row_join_harness, session_halves, sliced_halves

COUNT = 300
KEYS = [f"key {number}" for number in range(COUNT)]
TIMED: list[HarnessStep] = [Rows([Row(key=key, n=1) for key in KEYS], [5] * COUNT)]
JOINED = [
    row_join_harness.left(*((key, 1) for key in KEYS), times=[5] * COUNT),
    row_join_harness.right(*((f"not {key}", 1) for key in KEYS), times=[5] * COUNT),
]
ROW = sliced_halves.ROW
WITH_SLICE = Types.ROW_NAMED(
    [*ROW.field_names, SLICE, STOOD_FOR], [*ROW.field_types, Types.LONG(), Types.LONG()]
)
EXTREME = ExtremeRows(EventTimeWindows(10, 10, 0), ("key",), "n", True)


def keyed(spec: OperatorSpec, input_type: RowTypeInfo = ROW) -> OperatorHarness:
    return OperatorHarness(
        spec,
        input_types=[input_type],
        output_type=ROW,
        keys=[lambda row: row["key"]],
        key_type=Types.STRING(),
    )


Make = Callable[[], OperatorHarness]
CASES: dict[str, tuple[Make, Sequence[HarnessStep]]] = {
    "slices": (
        lambda: sliced_halves.sliced("tumbling"),
        sliced_halves.partials_of("tumbling", TIMED),
    ),
    "sessions": (session_halves.sessions, session_halves.second_steps([[(k, 1, 5) for k in KEYS]])),
    "windows": (lambda: sliced_halves.plain("tumbling"), TIMED),
    "whole rows": (
        lambda: keyed(ExtremeRowsSpec(EXTREME), WITH_SLICE),
        [Rows([Row(**{"key": key, "n": 1, SLICE: 0, STOOD_FOR: 1}) for key in KEYS])],
    ),
    "join": (row_join_harness.plain_join, JOINED),
    "window join": (row_join_harness.window_join, JOINED),
    "partition": (
        lambda: keyed(MapPartitionSpec(lambda values: values)),
        [Rows([Row(key=key, n=1) for key in KEYS])],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_held_is_counted_until_it_is_given_restored_or_not(name: str) -> None:
    make, steps = CASES[name]
    before = columnar_state_bytes()
    harness = make()
    assert columnar_state_bytes() == before
    counted: list[int] = []
    for step in steps:
        if isinstance(step, Rows):
            harness.perform(step)
            counted.append(columnar_state_bytes() - before)
    assert counted == sorted(counted)
    assert counted[-1] >= COUNT * 16
    states = harness.states
    harness.restart(harness.snapshot())
    states.close()
    restored = columnar_state_bytes() - before
    assert counted[-1] / 2 < restored < counted[-1] * 2
    harness.perform(WatermarkAt(MAX_WATERMARK))
    harness.finish()
    left = columnar_state_bytes() - before
    assert left == 0 or (name == "windows" and left < counted[-1] / 3)
    harness.states.close()
    assert columnar_state_bytes() == before


@pytest.mark.parametrize("key_length", [6, 400])
def test_windows_with_many_keys_are_counted_about_as_large_as_they_are(key_length: int) -> None:
    count = 20_000
    keys = [f"{number:0{key_length}}" for number in range(count)]
    harness = sliced_halves.plain("tumbling")
    harness.perform(Rows([Row(key="a", n=1)], [5]))
    before = columnar_state_bytes()
    tracemalloc.start()
    try:
        for begin in range(0, count, 1_000):
            rows = [Row(key=key, n=1) for key in keys[begin : begin + 1_000]]
            harness.perform(Rows(rows, [5] * len(rows)))
            del rows
        harness.output.main.clear()
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    counted = columnar_state_bytes() - before
    harness.states.close()
    assert taken / 2 < counted < taken * 2
