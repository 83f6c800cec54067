"""CheckpointIo and CheckpointIdCounter: call the checkpoint store concurrently with the JobMaster's main thread.

Calls run one at a time. Deletions run concurrently with them and are only counted: many pending deletions delay the
next checkpoint. Ids are reserved before their checkpoints: making one durable takes two disk syncs, for which neither a
checkpoint nor the end of a job must wait. An unused id is given up with the job, so ids rise with gaps. Both run on the
JobMaster's main thread. Source: Flink CheckpointIDCounter, CheckpointsCleaner.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from headrace.checkpoint.handles import StateFile, TaskStateSnapshot
from headrace.cluster.job_master.checkpointing.store.checkpoint_store import (
    CheckpointsLeft,
    CheckpointStore,
)
from headrace.cluster.leadership import always_leads
from headrace.core.barriers import CheckpointOptions
from headrace.core.errors import HeadraceError
from headrace.core.threads import BlockingRunner

T = TypeVar("T")

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class DeletionLeft:
    """Files of an ended job that the storage has not deleted (`left`). `again` retries once, and returns the rest."""

    left: CheckpointsLeft
    again: Callable[[], Awaitable[CheckpointsLeft]]


class CheckpointIo:
    """Calls a store. `spawn` starts a coroutine on the main thread; `on_cleaned` is called after each deletion.

    `fence` is called right before each call, on its thread: it raises if another process may lead the job by now.
    """

    def __init__(
        self,
        store: CheckpointStore,
        run_blocking: BlockingRunner,
        spawn: Callable[[Coroutine[Any, Any, None], str], object],
        on_cleaned: Callable[[], None],
        fence: Callable[[], None] = always_leads,
    ) -> None:
        self._fence: Final = fence
        self.store: Final = store
        self._run_blocking: Final = run_blocking
        self._spawn: Final = spawn
        self._on_cleaned: Final = on_cleaned
        self._cleaning_count = 0
        # Deletions that the store starts by itself and has not done.
        self._subsumed_count = 0
        # Taken by coroutines of one loop, never across threads: blocking calls reach the store one at a time.
        self._turn: Final = asyncio.Lock()

    @property
    def cleaning_count(self) -> int:
        """Number of deletions that are not done."""
        return self._cleaning_count + self._subsumed_count

    def subsumed_left(self, count: int) -> None:
        """Record the number of deletions that the store has started by itself and not done."""
        self._subsumed_count = count
        self._on_cleaned()

    async def call(self, what: str, call: Callable[[], T]) -> T:
        """Run a call after the previous ones have ended; raises its errors."""
        async with self._turn:
            return await self._run_blocking(f"checkpoint: {what}", lambda: self._fenced(call))

    def left_to_delete(
        self, left: CheckpointsLeft, close: Callable[[], CheckpointsLeft]
    ) -> DeletionLeft:
        """Return the retry to use after the job's end, which keeps the store but nothing of the JobMaster alive."""
        run_blocking, fence = self._run_blocking, self._fence
        self.store.detach()

        def fenced() -> CheckpointsLeft:
            fence()
            return close()

        async def again() -> CheckpointsLeft:
            return await run_blocking("checkpoint: delete what is left", fenced)

        return DeletionLeft(left, again)

    def _fenced(self, call: Callable[[], T]) -> T:
        self._fence()
        return call()

    def register_shared(self, checkpoint_id: int, snapshot: TaskStateSnapshot) -> None:
        """Record that the snapshot's shared files belong to a checkpoint."""
        shared = [each for each in snapshot.files() if each.is_shared]
        if shared:
            self.store.register_shared(checkpoint_id, shared)

    def discard(
        self, checkpoint_id: int, options: CheckpointOptions, files: Iterable[StateFile]
    ) -> None:
        """Delete in the background the location, and those files that belong to the checkpoint alone."""
        own = [each for each in files if each.uri and not each.is_shared]
        if own or options.exclusive_uri:
            self._cleaning_count += 1
            self._spawn(self._clean(checkpoint_id, options, own), "delete a checkpoint's files")

    async def _clean(
        self, checkpoint_id: int, options: CheckpointOptions, files: list[StateFile]
    ) -> None:
        try:
            await self._run_blocking(
                "checkpoint-cleaner",
                lambda: self._fenced(lambda: self.store.discard(checkpoint_id, options, files)),
            )
        except HeadraceError as error:
            _LOG.warning("could not delete files of checkpoint %d: %s", checkpoint_id, error)
        finally:
            self._cleaning_count -= 1
        self._on_cleaned()


class CheckpointIdCounter:
    """Assigns the ids of a job's checkpoints. `spawn` starts a coroutine on the main thread."""

    def __init__(
        self, calls: CheckpointIo, spawn: Callable[[Coroutine[Any, Any, None], str], object]
    ) -> None:
        self._calls: Final = calls
        self._spawn: Final = spawn
        self._ahead: int | None = None
        self._is_closed = False
        # Ids are assigned in the order in which they are reserved: one coroutine at a time.
        self._turn: Final = asyncio.Lock()

    async def take(self) -> int:
        """Return the next id. Raises the errors of the storage."""
        async with self._turn:
            ahead, self._ahead = self._ahead, None
            return await self._take("take an id") if ahead is None else ahead

    def take_ahead(self) -> None:
        """Reserve the next id in the background, unless one is reserved already."""
        if self._ahead is None and not self._is_closed:
            self._spawn(self._take_ahead(), "take an id ahead")

    async def close(self) -> None:
        """Give up an unused id, because no more checkpoints are taken."""
        self._is_closed = True
        async with self._turn:
            ahead, self._ahead = self._ahead, None
            if ahead is not None:
                self._calls.store.give_up_id(ahead)

    async def _take_ahead(self) -> None:
        async with self._turn:
            if self._ahead is not None or self._is_closed:
                return
            try:
                self._ahead = await self._take("take an id ahead")
            except Exception as error:
                # The next checkpoint retries, and reports the error.
                _LOG.info("could not reserve a checkpoint id ahead: %s", error)

    async def _take(self, what: str) -> int:
        return await self._calls.call(what, self._calls.store.take_id)
