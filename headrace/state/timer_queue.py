"""What a keyed state backend offers for timers: a set of (time, key, namespace), taken out in order of time.

An operator has one queue per time domain. `state.heap_timers` keeps them in memory, `state.rocksdb.timers` on disk.
Source: Flink KeyGroupedInternalPriorityQueue, PriorityQueueSetFactory.
"""

from collections.abc import Callable, Iterator
from typing import Any, ClassVar, Protocol

from headrace.core.barriers import CheckpointOptions

Timer = tuple[int, Any, Any]
"""(time, key, namespace)"""

TimerCallback = Callable[[int, Any, Any], None]
"""Called with (time, key, namespace) of a timer that fires."""

IsEnough = Callable[[], bool]
"""Whether the timers that are still due had better wait."""


class FrozenTimerQueue(Protocol):
    """The timers of a queue as they were when it was frozen. Any thread; read once."""

    is_by_key_group: ClassVar[bool]
    """Whether they come in order of key group."""

    def __iter__(self) -> Iterator[Timer]:
        """Every timer that a snapshot has to write as a row."""
        ...

    def release(self) -> None:
        """Let go of what was held for it. Idempotent."""
        ...


class TimerQueue(Protocol):
    """Timers of one domain of one operator on one subtask. Ties are in no stated order. Mailbox thread only."""

    def __len__(self) -> int:
        """Number of timers that wait, for tests: may look at each of them."""
        ...

    def register(self, time_ms: int, key: Any, namespace: Any) -> None:
        """Add a timer; one that is there already stays one."""
        ...

    def delete(self, time_ms: int, key: Any, namespace: Any) -> None:
        """Remove a timer; no effect where there is none."""
        ...

    def next_time_ms(self) -> int | None:
        """Return the time of the first timer, or None without timers."""
        ...

    def fire_until(
        self, limit_ms: int, fire: TimerCallback, is_enough: IsEnough | None = None
    ) -> bool:
        """Remove and call back every timer with time <= `limit_ms`, also those that callbacks register meanwhile.

        `is_enough` is asked behind each of them; where it says so, the others stay. False where some did.
        """
        ...

    def freeze(self, options: CheckpointOptions) -> FrozenTimerQueue:
        """Return all timers as they are now; none where the backend's own snapshot has them in its files. Cheap."""
        ...
