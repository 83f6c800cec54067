"""LockWatcherGateway: the one question that the watcher process of a TaskManager answers."""

from typing import Protocol

import msgspec


class HeldLock(msgspec.Struct, frozen=True):
    """The interpreter lock is held for `held_ms` by now, as far as stacks tell in `function` ('' if they do not)."""

    held_ms: int
    function: str


class LockWatcherGateway(Protocol):
    """A process beside a TaskManager, which still answers while C code holds the interpreter lock there."""

    async def request_held_lock(self) -> HeldLock | None:
        """Return how long the lock is held; None where it is not, or the TaskManager's process stands still."""
        ...
