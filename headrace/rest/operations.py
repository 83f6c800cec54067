"""Operations: asynchronous operations of clients, such as savepoints, found by trigger id.

Source: Flink's AbstractAsynchronousOperationHandlers and CompletedOperationCache.
"""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Final

from headrace.core.clock import Clock
from headrace.core.threads import spawn
from headrace.rest.handler_errors import UnavailableError

_KEPT_MAX: Final = 1000


@dataclass
class _Operation:
    task: asyncio.Task[Any]
    completed_ms: float | None = None
    is_fetched: bool = False


class Operations:
    """Operations by kind, job and trigger id; a result is kept for `store_ms` after its completion."""

    def __init__(self, clock: Clock, store_ms: float) -> None:
        self._clock: Final = clock
        self._store_ms: Final = store_ms
        self._operations: dict[tuple[str, str, str], _Operation] = {}
        self._tasks: Final[set[asyncio.Task[Any]]] = set()
        self._fetched: Final = asyncio.Event()

    def start(
        self,
        kind: str,
        subject: str,
        trigger_id: str,
        begin: Callable[[], Coroutine[Any, Any, Any]],
    ) -> None:
        """Start an operation, unless one with this trigger id exists; UnavailableError if there are too many."""
        self._forget()
        key = (kind, subject, trigger_id)
        if key in self._operations:
            return
        if len(self._operations) >= _KEPT_MAX:
            raise UnavailableError(
                f"{_KEPT_MAX} operations are running or kept; try again when some have expired"
            )
        operation = _Operation(spawn(begin(), asyncio.get_running_loop(), kind, self._tasks))
        operation.task.add_done_callback(lambda _: self._completed(operation))
        self._operations[key] = operation

    def find(self, kind: str, subject: str, trigger_id: str) -> asyncio.Task[Any] | None:
        """Return an operation, done or not, or None if it is unknown."""
        self._forget()
        operation = self._operations.get((kind, subject, trigger_id))
        if operation is None:
            return None
        if operation.task.done():
            operation.is_fetched = True
            self._fetched.set()
        return operation.task

    async def all_fetched(self) -> None:
        """Wait until a client has fetched each result.

        A job may end with its savepoint, and the cluster with its job: the client must be able to learn the location.
        Source: Flink CompletedOperationCache.closeAsync.
        """
        while any(not operation.is_fetched for operation in self._operations.values()):
            self._fetched.clear()
            await self._fetched.wait()

    def _completed(self, operation: _Operation) -> None:
        operation.completed_ms = self._clock.monotonic_ms()
        if not operation.task.cancelled():
            # Retrieved, so that an error that nobody fetches is not reported as lost.
            operation.task.exception()

    def _forget(self) -> None:
        oldest_ms = self._clock.monotonic_ms() - self._store_ms
        for key, operation in list(self._operations.items()):
            if operation.completed_ms is not None and operation.completed_ms <= oldest_ms:
                del self._operations[key]
