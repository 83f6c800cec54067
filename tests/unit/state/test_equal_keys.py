"""Keys that Python calls equal are one key, on either backend: of states, of maps and of timers."""

import enum
from datetime import UTC, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from headrace.core.types.rows import Row
from headrace.functions.process import TimeDomain
from tests.unit.state.subtasks import Subtask


class Named(NamedTuple):
    name: str
    number: int


class Side(enum.StrEnum):
    NORTH = "north"


PLUS_2, MINUS_3 = timezone(timedelta(hours=2)), timezone(timedelta(hours=-3))

EQUAL: list[list[Any]] = [
    [1, True, 1.0, np.int64(1), np.bool_(True)],
    [Decimal(0), False, 0],
    [("a", 1), ("a", True), ("a", 1.0)],
    [Row(0, "a"), Row(False, "a")],
    [frozenset({1, 9, 17}), frozenset({17, 9.0, True})],
    [Decimal("1.10"), Decimal("1.1"), Decimal("1.1000")],
    [Decimal("1.23456789012345678901234567890"), Decimal("1.2345678901234567890123456789")],
    [Decimal("-1E-30"), Decimal("-10E-31")],
    [(Decimal("0.3"), 1), (Decimal("0.30"), 1.0)],
    [Named("b", 1), ("b", 1), ("b", True)],
    [(("c", 2), 3), (Named("c", 2), 3)],
    ["north", Side.NORTH],
    [datetime(2024, 7, 1, 12, tzinfo=UTC), datetime(2024, 7, 1, 14, tzinfo=PLUS_2)],
    [datetime(2024, 7, 1, 12), datetime(2024, 7, 1, 12, fold=1)],
    [time(12, tzinfo=UTC), time(14, tzinfo=PLUS_2)],
    [time(0, 30, tzinfo=PLUS_2), time(0, 0, tzinfo=timezone(timedelta(hours=1, minutes=30)))],
    [time(23, tzinfo=MINUS_3), time(22, 30, tzinfo=timezone(timedelta(hours=-3, minutes=-30)))],
    [time(12), time(12, fold=1)],
]


@pytest.mark.parametrize("kind", ["hashmap", "rocksdb"])
def test_keys_that_python_calls_equal_are_one_key(kind: str, tmp_path: Path) -> None:
    subtask = Subtask(kind, str(tmp_path))
    for keys in EQUAL:
        for key in keys:
            subtask.backend.set_current_key(key)
            subtask.handles["reducing"].add(1)
            subtask.handles["map"].put(key, "x")
            subtask.timers.register(TimeDomain.EVENT_TIME, 3, None)
        assert subtask.handles["reducing"].get() == len(keys)
        assert list(subtask.handles["map"].keys()) == keys[:1]
    assert subtask.backend.key_count("reducing") == len(EQUAL)
    assert len(subtask.timers_of(TimeDomain.EVENT_TIME)) == len(EQUAL)
    subtask.states.close()
