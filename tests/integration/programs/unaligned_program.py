"""A program with rows in flight, and what it has written."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from headrace import Types
from headrace.datastream import KeyedProcessFunction, RuntimeContext
from headrace.datastream.state import ValueStateDescriptor

COUNT, KEY_COUNT, WAIT_S = 4000, 7, 60


PAIR = Types.TUPLE([Types.INT(), Types.INT()])


class Tap:
    """Lets so many records through, in all subtasks together. The test and two tasks share it: hence the lock."""

    def __init__(self) -> None:
        self._changed = threading.Condition(threading.RLock())
        self._left = 0
        self.taken = 0

    def let_if_empty(self, count: int) -> None:
        with self._changed:
            if not self._left:
                self.let(count)

    def let(self, count: int) -> None:
        with self._changed:
            self._left += count
            self._changed.notify_all()

    def take(self) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: self._left > 0, WAIT_S)
            self._left -= 1
            self.taken += 1


TAPS: dict[str, Tap] = {}


class SlowCount(KeyedProcessFunction):
    """Counts as fast as the tap lets it; fails once, when the marker is to be made."""

    def __init__(self, tap: str, marker: str) -> None:
        self._tap = tap
        self._marker = Path(marker)

    def open(self, runtime_context: RuntimeContext) -> None:
        self._count = runtime_context.get_state(ValueStateDescriptor("count", Types.INT()))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        TAPS[self._tap].take()
        if self._marker.exists():
            self._marker.unlink()
            raise ValueError("it was to fail once")
        count = (self._count.value() or 0) + 1
        self._count.update(count)
        yield ctx.get_current_key(), count
