"""CollectCoordinator: keeps what collect sinks send until the client has fetched it. Built in under `collect`.

Each event is one batch and gets the next offset; a client's fetch from offset n forgets what stands before n. Beyond
its bound the coordinator refuses events, which their TaskManager repeats: that is how a slow client slows the job.
"""

from collections import deque
from typing import Final

from headrace.cluster.job_master.operator_coordinator import CoordinatorContext
from headrace.core.config import ConfigOption, SizeBytes
from headrace.core.ids import ExecutionAttemptId
from headrace.core.shuffle_descriptors import TaskManagerLocation
from headrace.gateways.errors import CoordinatorBusyError
from headrace.gateways.job_master import CollectedResults

COLLECT_BUFFER_SIZE: Final = ConfigOption(
    "headrace.collect.buffer-size",
    SizeBytes,
    SizeBytes(32 << 20),
    "Bytes of collected records that wait for the client before the job is slowed down.",
)
_REPLY_SIZE_MAX: Final = 4 << 20


class CollectCoordinator:
    """Collected batches of one sink, over all its subtasks. Implements OperatorCoordinator."""

    def __init__(self, context: CoordinatorContext, payload: bytes) -> None:
        self._buffer_size_max = context.settings.get_option(COLLECT_BUFFER_SIZE)
        self._batches: deque[bytes] = deque()
        self._first_offset = 0
        self._size_bytes = 0
        self._open_subtasks = set(range(context.parallelism))
        self._has_ended = False

    def start(self) -> None:
        """Nothing to prepare."""

    def subtask_ready(self, attempt_id: ExecutionAttemptId, location: TaskManagerLocation) -> None:
        """Nothing to tell."""

    def subtask_failed(self, attempt_id: ExecutionAttemptId) -> None:
        """What it sent stays: without checkpoints a restarted job delivers again from its beginning."""
        self._open_subtasks.add(attempt_id.subtask_index)

    def handle_event(self, attempt_id: ExecutionAttemptId, payload: bytes) -> None:
        """Keep one batch; CoordinatorBusyError beyond the bound (one batch always has room).

        An event without bytes follows a subtask's last batch.
        """
        if not payload:
            self._open_subtasks.discard(attempt_id.subtask_index)
            return
        if self._batches and self._size_bytes + len(payload) > self._buffer_size_max:
            raise CoordinatorBusyError("collected records wait for the client to fetch them")
        self._batches.append(payload)
        self._size_bytes += len(payload)

    @property
    def size_bytes(self) -> int:
        """Bytes of what the client has not fetched yet."""
        return self._size_bytes

    def fetch(self, offset: int, max_batch_count: int) -> CollectedResults:
        """Forget batches before `offset` and return those from there on; the reply's size is bounded too."""
        while self._batches and self._first_offset < offset:
            self._size_bytes -= len(self._batches.popleft())
            self._first_offset += 1
        chosen: list[bytes] = []
        size_bytes = 0
        for batch in self._batches:
            size_bytes += len(batch)
            if len(chosen) >= max_batch_count or (chosen and size_bytes > _REPLY_SIZE_MAX):
                break
            chosen.append(batch)
        is_last = len(chosen) == len(self._batches) and (self._has_ended or not self._open_subtasks)
        return CollectedResults(self._first_offset, tuple(chosen), is_last)

    def end(self) -> None:
        """Nothing will follow what is here."""
        self._has_ended = True

    async def job_finishing(self) -> None:
        """Everything that was sent is here already: reports keep their order with events."""
        self.end()

    async def close(self) -> None:
        """What is here stays for the client."""
        self.end()
