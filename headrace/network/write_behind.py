"""WriteBehind: what one task stores is written on the I/O pool, in order, while the task goes on.

The task hands over chunks and is stopped only where more than a limit would be on its way; an error of the disk
reaches it with its next call, and nothing is written after that. Where jobs do not run beside their submitter, as in
a simulation or on the I/O pool itself, every chunk is written at once.
Source: Flink PartitionedFileWriter, whose writes the task does itself.
"""

import threading
from collections.abc import Callable
from typing import Final

from headrace.network.io_pool import IoExecutor, SerialJobs


class WriteBehind:
    """Chunks of one file. By the task's thread."""

    def __init__(self, io: IoExecutor, limit_bytes: int) -> None:
        self._limit_bytes: Final = limit_bytes
        self._jobs: Final = SerialJobs(io) if io.is_concurrent else None
        # Guards changes of the fields below: the task hands over, the I/O pool writes and wakes the task.
        self._condition = threading.Condition()
        self._pending_bytes = 0
        self._error: Exception | None = None

    @property
    def pending_bytes(self) -> int:
        """Bytes that are on their way. Any thread; a moment's reading."""
        return self._pending_bytes

    def await_room(self, size_bytes: int) -> None:
        """Wait until so many bytes more keep to the limit, or nothing is on its way. What an earlier write raised."""
        with self._condition:
            self._condition.wait_for(
                lambda: (
                    self._error is not None
                    or not self._pending_bytes
                    or self._pending_bytes + size_bytes <= self._limit_bytes
                )
            )
            self._raise_error()

    def submit(self, size_bytes: int, write: Callable[[], None]) -> None:
        """Have a chunk written behind those before it. Does not wait. What this or an earlier write raised."""
        with self._condition:
            self._raise_error()
            self._pending_bytes += size_bytes
        if self._jobs is not None:
            self._jobs.submit(lambda: self._write(size_bytes, write))
            return
        self._write(size_bytes, write)
        with self._condition:
            self._raise_error()

    def drain(self) -> None:
        """Wait until everything was written. What a write raised."""
        with self._condition:
            self._condition.wait_for(lambda: not self._pending_bytes)
            self._raise_error()

    def _write(self, size_bytes: int, write: Callable[[], None]) -> None:
        error: Exception | None = None
        try:
            if self._error is None:
                write()
        except Exception as raised:
            error = raised
        # What the chunk holds is free before the task may go on.
        del write
        with self._condition:
            self._error = self._error or error
            self._pending_bytes -= size_bytes
            self._condition.notify_all()

    def _raise_error(self) -> None:
        if self._error is not None:
            raise self._error
