"""KeptAnswers: a cache of answers, so that many clients cost as much as one."""

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, Final, TypeVar, cast

from headrace.core.clock import Clock
from headrace.core.threads import spawn

T = TypeVar("T")

_KEPT_MAX: Final = 1000


class KeptAnswers:
    """Values that are computed at most once per interval, however many clients ask concurrently.

    Errors are not kept.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock: Final = clock
        # In the order of requests, each with the time until which it is valid.
        self._kept: dict[Hashable, tuple[float, asyncio.Future[Any]]] = {}
        self._tasks: Final[set[asyncio.Task[Any]]] = set()

    def __len__(self) -> int:
        return len(self._kept)

    async def get(
        self, key: Hashable, interval_ms: float, compute: Callable[[], Coroutine[Any, Any, T]]
    ) -> T:
        """Return the value under `key`, computed anew if it is older than `interval_ms`."""
        self._drop_old()
        kept = self._kept.get(key)
        if kept is None or (kept[1].done() and kept[0] <= self._clock.monotonic_ms()):
            value = spawn(compute(), asyncio.get_running_loop(), "kept answer", self._tasks)
            self._kept.pop(key, None)
            self._kept[key] = (self._clock.monotonic_ms() + interval_ms, value)
            value.add_done_callback(lambda done: self._drop_failed(key, done))
        else:
            value = kept[1]
        # A caller that stops waiting does not stop the others.
        return cast(T, await asyncio.shield(value))

    def forget(self, key: Hashable) -> None:
        """Drop the value under `key`, so that the next request computes it anew."""
        self._kept.pop(key, None)

    def _drop_old(self) -> None:
        """Drop outdated values, and the oldest ones if there are too many."""
        now_ms = self._clock.monotonic_ms()
        for key, (until_ms, value) in list(self._kept.items()):
            if len(self._kept) < _KEPT_MAX and not (value.done() and until_ms <= now_ms):
                break
            del self._kept[key]

    def _drop_failed(self, key: Hashable, done: asyncio.Future[Any]) -> None:
        kept = self._kept.get(key)
        if kept is None or kept[1] is not done:
            return
        if done.cancelled() or done.exception() is not None:
            del self._kept[key]
