"""SnapshotRequests: who waits for which snapshot.

Runs on the JobMaster's main thread.
"""

import asyncio

from headrace.checkpoint.metadata import CompletedCheckpoint
from headrace.cluster.job_master.checkpointing.protocol.request_queue import CheckpointRequest
from headrace.gateways.errors import CheckpointFailedError


class SnapshotRequests:
    """Numbers that the coordinator knows requests by, and the futures of those that somebody waits for."""

    def __init__(self) -> None:
        self._waiting: dict[int, asyncio.Future[CompletedCheckpoint]] = {}
        self._next_number = 1

    def take_number(self) -> int:
        """Return the number of a new request that nobody waits for."""
        number, self._next_number = self._next_number, self._next_number + 1
        return number

    def wait(self) -> tuple[int, asyncio.Future[CompletedCheckpoint]]:
        """Return the number of a new request and its future, which fails with CheckpointFailedError."""
        number = self.take_number()
        done = asyncio.get_running_loop().create_future()
        self._waiting[number] = done
        return number, done

    def complete(self, request: CheckpointRequest, snapshot: CompletedCheckpoint) -> None:
        """It is published."""
        waiting = self._waiting.pop(request.number, None)
        if waiting is not None and not waiting.done():
            waiting.set_result(snapshot)

    def fail(self, request: CheckpointRequest, text: str) -> None:
        """It came to nothing."""
        waiting = self._waiting.pop(request.number, None)
        if waiting is not None and not waiting.done():
            waiting.set_exception(CheckpointFailedError(text))
