"""LockWatcherGateway: the single request that the watcher process of a TaskManager answers."""

from typing import Protocol

import msgspec


class HeldLock(msgspec.Struct, frozen=True):
    """The interpreter lock has been held for `held_ms`, according to the stacks in `function` ('' if not known)."""

    held_ms: int
    function: str


class LockWatcherGateway(Protocol):
    """A process next to a TaskManager, which still answers while C code holds the TaskManager's interpreter lock."""

    async def request_held_lock(self) -> HeldLock | None:
        """Return how long the lock has been held; None if it is free, or the TaskManager's process is stopped."""
        ...
