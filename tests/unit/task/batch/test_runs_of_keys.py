"""Many records of a key, which BATCH mode handles in a loop of its own, give what few of them give."""

from collections.abc import Iterator
from functools import reduce
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace import OutputTag, StreamExecutionEnvironment
from headrace.api.streams.data_stream import DataStream
from headrace.common import Types
from headrace.core.errors import UserCodeError
from headrace.datastream import KeyedProcessFunction, RuntimeContext
from headrace.datastream.state import ValueStateDescriptor
from tests.unit.api.recording import recording
from tests.unit.task.batch.local_stages import LocalStages

PAIR = Types.TUPLE([Types.LONG(), Types.LONG()])
HUNDREDS = OutputTag("hundreds", PAIR)
results: list[Any] = []
Pairs = list[tuple[int, int]]


def keep(value: Any) -> Any:
    results.append(value)
    return value


class Numbered(KeyedProcessFunction):
    """Gives each key's last number, every third record with its place, and every hundredth to a side output."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self._count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        assert ctx.timestamp() is None
        assert ctx.get_current_key() == value[0]
        count = (self._count.value() or 0) + 1
        self._count.update(count)
        ctx.timer_service().register_event_time_timer(0)
        if count % 100 == 0:
            return [(HUNDREDS, (value[0], count))]
        return [(value[0], count)] if count % 3 == 0 else None

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterator[Any]:
        yield ctx.get_current_key(), -(self._count.value() or 0)


def run(build: Any, pairs: Pairs, batch_rows: int) -> list[Any]:
    results.clear()
    with recording(1) as executor:
        env = StreamExecutionEnvironment.get_execution_environment()
        env.set_parallelism(1)
        build(env.from_collection(pairs, PAIR))
        env.execute_async()
        graph = executor.last
    LocalStages(graph, batch_rows).run()
    return sorted(results)


def numbered(stream: DataStream) -> None:
    made = stream.key_by(lambda pair: pair[0], Types.LONG()).process(Numbered(), PAIR)
    made.map(keep).print()
    made.get_side_output(HUNDREDS).map(keep).print()


sizes = st.lists(st.integers(1, 260), min_size=1, max_size=5)


@settings(max_examples=20, deadline=None)
@given(sizes, st.integers(1, 50))
def test_records_without_timestamps_are_handled_under_their_keys(
    counts: list[int], batch_rows: int
) -> None:
    pairs = [(key, place) for key, count in enumerate(counts) for place in range(count)]
    expected = [(key, -count) for key, count in enumerate(counts)]
    for key, count in enumerate(counts):
        places = range(1, count + 1)
        expected += [(key, place) for place in places if place % 3 == 0 or place % 100 == 0]
    assert run(numbered, pairs, batch_rows) == sorted(expected)


@pytest.mark.parametrize(
    "fold",
    [
        lambda a, b: (a[0], a[1] * 3 % 1009 + b[1]),
        # Not what state keeps of it: each fold is brought into the form of the type before the next one.
        lambda a, b: (a[0], np.int64(a[1] * 3 % 1009 + b[1])),
        lambda a, b: [a[0], a[1] * 3 % 1009 + b[1]],
    ],
    ids=["plain", "numpy", "list"],
)
@settings(max_examples=10, deadline=None)
@given(counts=sizes, batch_rows=st.integers(1, 50))
def test_reduce_folds_the_records_of_a_key_in_order(
    fold: Any, counts: list[int], batch_rows: int
) -> None:
    pairs = [(key, place) for key, count in enumerate(counts) for place in range(count)]

    def folded(stream: DataStream) -> None:
        stream.key_by(lambda pair: pair[0], Types.LONG()).reduce(fold).map(keep).print()

    def expected(key: int, count: int) -> tuple[int, int]:
        return key, reduce(lambda a, b: a * 3 % 1009 + b, range(count))

    assert run(folded, pairs, batch_rows) == sorted(
        expected(key, count) for key, count in enumerate(counts)
    )


def test_a_fold_that_does_not_fit_among_many_names_the_function() -> None:
    def to_text(a: Any, b: Any) -> Any:
        return (a[0], "late") if b[1] == 200 else (a[0], a[1] + b[1])

    def folded(stream: DataStream) -> None:
        stream.key_by(lambda pair: pair[0], Types.LONG()).reduce(to_text).print()

    with pytest.raises(UserCodeError, match=r"reduce must return .*'late'.*test_runs_of_keys.py"):
        run(folded, [(1, place) for place in range(300)], 50)


def converted(a: Any, b: Any) -> Any:
    results.append(b)
    return a[0], np.int64(a[1] + b[1])


def refused(a: Any, b: Any) -> Any:
    results.append(b)
    if b[1] == 30:
        raise ValueError("thirty")
    return b


def test_folds_that_state_converts_are_made_twice_for_the_first_run_of_a_key_only() -> None:
    pairs = [(key, 1) for key in range(10) for _ in range(20)]
    calls = run(
        lambda stream: stream.key_by(lambda pair: pair[0], Types.LONG()).reduce(converted).print(),
        pairs,
        20,
    )
    assert len(calls) == 10 * 19 + 19


def test_a_function_that_raises_among_many_records_is_called_once_for_them() -> None:
    with pytest.raises(UserCodeError, match=r"thirty.*test_runs_of_keys.py"):
        run(
            lambda stream: (
                stream.key_by(lambda pair: pair[0], Types.LONG()).reduce(refused).print()
            ),
            [(1, place) for place in range(50)],
            50,
        )
    assert results == [(1, place) for place in range(1, 31)]
