import inspect
from collections.abc import Callable
from typing import Any

import pytest

from headrace import StreamExecutionEnvironment, Types
from headrace.api.streams.data_stream import DataStream
from headrace.core.errors import ProgramError
from headrace.functions.state import MapStateDescriptor

ROW_A = Types.ROW_NAMED(["a"], [Types.INT()])
ROW_B = Types.ROW_NAMED(["b"], [Types.INT()])
RULES = MapStateDescriptor("rules", Types.INT(), Types.INT())


def key(value: Any) -> int:
    return value[0]


COMBINATIONS: dict[str, Callable[[DataStream, DataStream], object]] = {
    "union": lambda a, b: a.union(a, b),
    "connect": lambda a, b: a.connect(b),
    "broadcast": lambda a, b: a.connect(b.broadcast(RULES)),
    "keyed broadcast": lambda a, b: a.key_by(key).connect(b.broadcast(RULES)),
    "keyed": lambda a, b: a.key_by(key, Types.INT()).connect(b.key_by(key, Types.INT())),
    "join": lambda a, b: a.join(b),
    "co_group": lambda a, b: a.co_group(b),
    "interval_join": lambda a, b: a.key_by(key, Types.INT()).interval_join(
        b.key_by(key, Types.INT())
    ),
    "keyed union": lambda a, b: a.key_by(key).union(b.key_by(key)),
    "of unions": lambda a, b: a.union(a).connect(b.union(b)),
}


@pytest.mark.parametrize("combine", COMBINATIONS.values(), ids=COMBINATIONS)
def test_streams_of_two_environments_are_not_brought_together(
    combine: Callable[[DataStream, DataStream], object],
) -> None:
    here = StreamExecutionEnvironment.get_execution_environment()
    there = StreamExecutionEnvironment.get_execution_environment()
    a = here.from_collection([(1,)], ROW_A)
    b = there.from_collection([(2,)], ROW_A)
    with pytest.raises(ProgramError, match="streams of one environment"):
        combine(a, b)
    combine(a, here.from_collection([(3,)], ROW_A))


def test_a_join_of_rows_needs_one_environment_too() -> None:
    here = StreamExecutionEnvironment.get_execution_environment()
    there = StreamExecutionEnvironment.get_execution_environment()
    left = here.from_collection([(1,)], ROW_A).key_by("a")
    with pytest.raises(ProgramError, match="join_rows needs streams of one environment"):
        left.join_rows(there.from_collection([(1,)], ROW_B).key_by("b"))
    left.join_rows(here.from_collection([(1,)], ROW_B).key_by("b"))


def test_the_error_says_where_either_stream_was_made() -> None:
    line = inspect.stack()[0].lineno
    a = StreamExecutionEnvironment.get_execution_environment().from_collection([1])
    b = StreamExecutionEnvironment.get_execution_environment().from_collection([2]).map(abs)
    with pytest.raises(ProgramError) as refused:
        a.union(b)
    assert str(refused.value) == (
        f"union needs streams of one environment, but the stream of 'Collection Source' ({__file__}, line {line + 1}) "
        f"and the stream of 'Map' ({__file__}, line {line + 2}) belong to two: make both streams from one "
        "get_execution_environment()"
    )
