"""CheckpointIds: the ids of a job's checkpoints, one of them taken ahead.

To make an id durable takes two syncs of a disk, for which no checkpoint, and no end of a job, has to wait: the next one
is taken while there is time. One that nobody needed is given up with the job: ids rise, with gaps. Runs on the
JobMaster's main thread. Source: Flink CheckpointIDCounter.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Final

from headrace.cluster.job_master.checkpointing.store_calls import StoreCalls

_LOG = logging.getLogger(__name__)


class CheckpointIds:
    """One per job. `spawn` begins a coroutine on the main thread."""

    def __init__(
        self, calls: StoreCalls, spawn: Callable[[Coroutine[Any, Any, None], str], object]
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
