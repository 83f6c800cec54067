"""CollectCoordinator: keeps what collect sinks send until the client has fetched it. Built in under `collect`.

Each event is a piece of a batch and gets the next offset; a client's fetch from offset n forgets what stands before n.
Pieces stay as they came, so that neither a large row nor many subtasks can exceed the bound: beyond it the coordinator
refuses events, which their TaskManager repeats. That is how a slow client slows the job.
"""

from collections import deque
from typing import Final

from headrace.cluster.job_master.operator_coordinator import CoordinatorContext
from headrace.core.collect_events import is_last_piece, piece_of
from headrace.core.config import ConfigOption, SizeBytes
from headrace.core.ids import ExecutionAttemptId
from headrace.core.shuffle_descriptors import TaskManagerLocation
from headrace.gateways.errors import CoordinatorBusyError
from headrace.gateways.job_master import CollectedPiece, CollectedResults
from headrace.rpc.options import FRAME_SIZE

COLLECT_BUFFER_SIZE: Final = ConfigOption(
    "headrace.collect.buffer-size",
    SizeBytes,
    SizeBytes(32 << 20),
    "Bytes of collected records that wait for the client before the job is slowed down.",
)
_REPLY_SIZE_MAX: Final = 4 << 20


class CollectCoordinator:
    """Collected records of one sink, over all its subtasks. Implements OperatorCoordinator."""

    def __init__(self, context: CoordinatorContext, payload: bytes) -> None:
        self._buffer_size_max = context.settings.get_option(COLLECT_BUFFER_SIZE)
        # Half a frame leaves room for what stands around the pieces.
        frame_size = int(context.settings.get_option(FRAME_SIZE))
        self._reply_size_max = min(_REPLY_SIZE_MAX, frame_size // 2)
        self._pieces: deque[CollectedPiece] = deque()
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
        """Keep one piece; CoordinatorBusyError beyond the bound (one piece always has room).

        An event without bytes follows a subtask's last batch.
        """
        if not payload:
            self._open_subtasks.discard(attempt_id.subtask_index)
            return
        if self._pieces and self._size_bytes + len(payload) > self._buffer_size_max:
            raise CoordinatorBusyError("collected records wait for the client to fetch them")
        piece = CollectedPiece(
            attempt_id.subtask_index,
            attempt_id.attempt_number,
            is_last_piece(payload),
            piece_of(payload),
        )
        self._pieces.append(piece)
        self._size_bytes += len(piece.content)

    @property
    def size_bytes(self) -> int:
        """Bytes of what the client has not fetched yet."""
        return self._size_bytes

    def fetch(self, offset: int, max_piece_count: int) -> CollectedResults:
        """Forget pieces before `offset` and return those from there on; the reply's size is bounded too."""
        while self._pieces and self._first_offset < offset:
            self._size_bytes -= len(self._pieces.popleft().content)
            self._first_offset += 1
        chosen: list[CollectedPiece] = []
        size_bytes = 0
        for piece in self._pieces:
            size_bytes += len(piece.content)
            if len(chosen) >= max_piece_count or (chosen and size_bytes > self._reply_size_max):
                break
            chosen.append(piece)
        is_last = len(chosen) == len(self._pieces) and (self._has_ended or not self._open_subtasks)
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
