"""CheckpointIo: calls the checkpoint storage concurrently with the JobMaster's main thread, one call after the other.

Deletions run beside them and are only counted: how many there are holds new checkpoints up.

CheckpointIds: the ids of a job's checkpoints, one of them taken ahead.

To make an id durable takes two syncs of a disk, for which no checkpoint, and no end of a job, has to wait: the next one
is taken while there is time. One that nobody needed is given up with the job: ids rise, with gaps. Runs on the
JobMaster's main thread. Source: Flink CheckpointIDCounter.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Final, TypeVar

from headrace.checkpoint.handles import StateFile
from headrace.cluster.job_master.checkpointing.protocol.events import (
    DiscardLocation,
    DiscardState,
    RegisterSharedState,
)
from headrace.cluster.job_master.checkpointing.store.checkpoint_store import CheckpointStore
from headrace.core.barriers import CheckpointOptions
from headrace.core.errors import HeadraceError
from headrace.core.threads import BlockingRunner

T = TypeVar("T")

_LOG = logging.getLogger(__name__)


class CheckpointIo:
    """Used on the main thread. `spawn` begins a coroutine there; `on_cleaned` hears of every deletion that is done."""

    def __init__(
        self,
        store: CheckpointStore,
        run_blocking: BlockingRunner,
        spawn: Callable[[Coroutine[Any, Any, None], str], object],
        on_cleaned: Callable[[], None],
    ) -> None:
        self.store: Final = store
        self._run_blocking: Final = run_blocking
        self._spawn: Final = spawn
        self._on_cleaned: Final = on_cleaned
        self._cleaning_count = 0
        # Deletions that the store does by itself and has not done.
        self._subsumed_count = 0
        # Taken by coroutines of one loop, never across threads: what blocks comes to the store one call at a time.
        self._turn: Final = asyncio.Lock()

    @property
    def cleaning_count(self) -> int:
        """Deletions that are not done."""
        return self._cleaning_count + self._subsumed_count

    def subsumed_left(self, count: int) -> None:
        """Take in how many deletions the store has not done that it does by itself."""
        self._subsumed_count = count
        self._on_cleaned()

    async def call(self, what: str, call: Callable[[], T]) -> T:
        """Run a call when those before it have ended; whatever it raises."""
        async with self._turn:
            return await self._run_blocking(f"checkpoint: {what}", call)

    def perform(self, action: RegisterSharedState | DiscardState | DiscardLocation) -> None:
        """Register the shared files of an acknowledged snapshot, or discard files or a location that nobody needs."""
        match action:
            case RegisterSharedState(checkpoint_id, snapshot):
                shared = [each for each in snapshot.files() if each.is_shared]
                if shared:
                    self.store.register_shared(checkpoint_id, shared)
            case DiscardState(checkpoint_id, snapshot):
                self.discard(checkpoint_id, CheckpointOptions(), list(snapshot.files()))
            case DiscardLocation(checkpoint_id, options):
                self.discard(checkpoint_id, options, [])

    def discard(
        self, checkpoint_id: int, options: CheckpointOptions, files: Iterable[StateFile]
    ) -> None:
        """Delete what is the checkpoint's alone, some time."""
        own = [each for each in files if each.uri and not each.is_shared]
        if own or options.exclusive_uri:
            self._cleaning_count += 1
            self._spawn(self._clean(checkpoint_id, options, own), "delete a checkpoint's files")

    async def _clean(
        self, checkpoint_id: int, options: CheckpointOptions, files: list[StateFile]
    ) -> None:
        try:
            await self._run_blocking(
                "checkpoint-cleaner", lambda: self.store.discard(checkpoint_id, options, files)
            )
        except HeadraceError as error:
            _LOG.warning("files of checkpoint %d were not deleted: %s", checkpoint_id, error)
        finally:
            self._cleaning_count -= 1
        self._on_cleaned()


class CheckpointIds:
    """One per job. `spawn` begins a coroutine on the main thread."""

    def __init__(
        self, calls: CheckpointIo, spawn: Callable[[Coroutine[Any, Any, None], str], object]
    ) -> None:
        self._calls: Final = calls
        self._spawn: Final = spawn
        self._ahead: int | None = None
        self._is_closed = False
        # Ids are given out in the order in which they are taken: one coroutine at a time.
        self._turn: Final = asyncio.Lock()

    async def take(self) -> int:
        """Return the next id; whatever the storage raises."""
        async with self._turn:
            ahead, self._ahead = self._ahead, None
            return await self._take("take an id") if ahead is None else ahead

    def take_ahead(self) -> None:
        """Take the next one beside everything else, unless it is there already."""
        if self._ahead is None and not self._is_closed:
            self._spawn(self._take_ahead(), "take an id ahead")

    async def close(self) -> None:
        """No more checkpoints are taken: give up the id that nobody needed."""
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
                # Whoever needs one tries again, and hears of it.
                _LOG.info("no checkpoint id was taken ahead: %s", error)

    async def _take(self, what: str) -> int:
        return await self._calls.call(what, self._calls.store.take_id)
