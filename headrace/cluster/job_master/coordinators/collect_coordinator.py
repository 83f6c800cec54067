"""CollectCoordinator: keeps the records of collect sinks until the client has fetched them. Built-in name: `collect`.

Each event is a piece of a batch and gets the next offset; a client's fetch from offset n forgets all pieces before n.
Pieces are kept as received, so that neither a large row nor many subtasks can exceed the bound: beyond it the
coordinator refuses events, which their TaskManager repeats. In this way a slow client slows down the job.

If the job takes exactly-once checkpoints, a client sees only pieces that a published checkpoint covers. The others
wait in UncommittedPieces. They do not count for the bound: if events were refused, no checkpoint could cover them,
because a subtask's part of the checkpoint arrives after them. They have a bound of their own, beyond which the job
fails.

    sent by a subtask   piece piece MARK 3 piece MARK 4 piece
    3 is published      ^^^^^^^^^^^ goes to the client
    restart from 3                         ^^^^^^^^^^^^^^^^^^ is forgotten: it comes again

Source: Flink CollectSinkOperatorCoordinator, CheckpointedCollectResultBuffer.
"""

from collections import deque
from collections.abc import Sequence
from typing import Final

from headrace.checkpoint.options import INTERVAL, MODE, CheckpointingMode, member_of
from headrace.cluster.job_master.coordinators.operator_coordinator import CoordinatorContext
from headrace.core.config import ConfigOption, Settings, SizeBytes
from headrace.core.errors import ErrorDomain, HeadraceError
from headrace.core.ids import ExecutionAttemptId, UniqueId
from headrace.core.operator_events import is_last_piece, marked_checkpoint, piece_of
from headrace.core.randomness import system_random
from headrace.core.shuffle_descriptors import TaskManagerLocation
from headrace.gateways.errors import CoordinatorBusyError
from headrace.gateways.job_master import CollectedPiece, CollectedResults
from headrace.metrics.cluster_names import BUFFERED_BYTES
from headrace.rpc.options import FRAME_SIZE

COLLECT_BUFFER_SIZE: Final = ConfigOption(
    "headrace.collect.buffer-size",
    SizeBytes,
    SizeBytes(32 << 20),
    "Bytes of collected records that wait for the client before the job is slowed down. Records that wait for a "
    "checkpoint may take 4 times as much: with more the job fails.",
)
_REPLY_SIZE_MAX: Final = 4 << 20
_UNCOMMITTED_FACTOR: Final = 4


class UncommittedPieces:
    """Pieces of each subtask that no published checkpoint covers, with marks of checkpoints between them, in order."""

    def __init__(self) -> None:
        self._waiting: dict[int, list[CollectedPiece | int]] = {}
        self._size_bytes = 0

    @property
    def size_bytes(self) -> int:
        """Total size of the waiting pieces."""
        return self._size_bytes

    def add(self, subtask_index: int, element: CollectedPiece | int) -> None:
        """Add a piece of a subtask, or the mark of a checkpoint."""
        self._waiting.setdefault(subtask_index, []).append(element)
        if isinstance(element, CollectedPiece):
            self._size_bytes += len(element.content)

    def published(self, checkpoint_id: int) -> list[CollectedPiece]:
        """Remove and return the pieces of all subtasks that a published checkpoint covers."""
        taken: list[CollectedPiece] = []
        for subtask_index in sorted(self._waiting):
            taken += self._take(subtask_index, checkpoint_id)
        return taken

    def restored(self, subtask_index: int, checkpoint_id: int | None) -> list[CollectedPiece]:
        """Remove and return the pieces that a restarting subtask's checkpoint covers, and forget its other pieces."""
        taken = [] if checkpoint_id is None else self._take(subtask_index, checkpoint_id)
        self._pieces_of(self._waiting.pop(subtask_index, []))
        return taken

    def all_restored(self, checkpoint_id: int | None) -> list[CollectedPiece]:
        """Remove and return the covered pieces of all subtasks, which restart, and forget the others."""
        taken: list[CollectedPiece] = []
        for subtask_index in sorted(self._waiting):
            taken += self.restored(subtask_index, checkpoint_id)
        return taken

    def take_all(self) -> list[CollectedPiece]:
        """Remove and return all pieces, because the job has finished."""
        taken: list[CollectedPiece] = []
        for elements in self._waiting.values():
            taken += self._pieces_of(elements)
        self._waiting.clear()
        return taken

    def _take(self, subtask_index: int, checkpoint_id: int) -> list[CollectedPiece]:
        elements = self._waiting.get(subtask_index, [])
        end = 0
        for place, element in enumerate(elements):
            if isinstance(element, int) and element <= checkpoint_id:
                end = place + 1
        self._waiting[subtask_index] = elements[end:]
        return self._pieces_of(elements[:end])

    def _pieces_of(self, elements: list[CollectedPiece | int]) -> list[CollectedPiece]:
        """Return the pieces among removed elements."""
        pieces = [one for one in elements if isinstance(one, CollectedPiece)]
        self._size_bytes -= sum(len(piece.content) for piece in pieces)
        return pieces


class CollectBufferExceededError(HeadraceError):
    """More records were collected between two checkpoints than the JobMaster keeps; a restart would not help."""

    domain, recoverable = ErrorDomain.USER, False

    def __init__(self, operator_name: str, size_bytes: int, size_max: int) -> None:
        super().__init__(
            f"'{operator_name}' has collected {size_bytes} bytes that no checkpoint covers yet, but at most {size_max} "
            f"are kept, {_UNCOMMITTED_FACTOR} times {COLLECT_BUFFER_SIZE.key}: take checkpoints more often "
            f"({INTERVAL.key}), collect less, or set {COLLECT_BUFFER_SIZE.key} higher"
        )


class CollectCoordinator:
    """Collected records of one sink, from all its subtasks. Implements OperatorCoordinator."""

    def __init__(self, context: CoordinatorContext, payload: bytes) -> None:
        self._context = context
        self._id: Final = UniqueId.generate(system_random()).hex()
        self._buffer_size_max = context.settings.get_option(COLLECT_BUFFER_SIZE)
        # Half a frame leaves room for the rest of the message.
        frame_size = int(context.settings.get_option(FRAME_SIZE))
        self._reply_size_max = min(_REPLY_SIZE_MAX, frame_size // 2)
        self._pieces: deque[CollectedPiece] = deque()
        self._first_offset = 0
        self._size_bytes = 0
        self._open_subtasks = set(range(context.parallelism))
        self._has_ended = False
        self._uncommitted = UncommittedPieces() if _is_exactly_once(context.settings) else None
        self._has_exceeded = False
        context.metric_group.gauge(BUFFERED_BYTES, lambda: self._buffered_bytes)

    def start(self) -> None:
        """Do nothing: no preparation is needed."""

    def subtask_ready(self, attempt_id: ExecutionAttemptId, location: TaskManagerLocation) -> None:
        """Do nothing: the subtask needs no events."""

    def subtask_failed(self, attempt_id: ExecutionAttemptId) -> None:
        """Expect records from the subtask again; its pieces stay until `subtask_reset` names its checkpoint.

        Without checkpoints it starts from the beginning.
        """
        self._open_subtasks.add(attempt_id.subtask_index)

    def handle_event(self, attempt_id: ExecutionAttemptId, payload: bytes) -> None:
        """Keep one piece. CoordinatorBusyError beyond the bound (a single piece always has room).

        An event without bytes follows a subtask's last batch. The job fails beyond the bound for records that wait for
        a checkpoint.
        """
        if not payload:
            self._open_subtasks.discard(attempt_id.subtask_index)
            return
        marked = marked_checkpoint(payload)
        if marked is not None:
            if self._uncommitted is not None:
                self._uncommitted.add(attempt_id.subtask_index, marked)
            return
        if self._pieces and self._size_bytes + len(payload) > self._buffer_size_max:
            raise CoordinatorBusyError("collected records wait for the client to fetch them")
        piece = CollectedPiece(
            attempt_id.subtask_index,
            attempt_id.attempt_number,
            is_last_piece(payload),
            piece_of(payload),
        )
        if self._uncommitted is not None:
            self._uncommitted.add(attempt_id.subtask_index, piece)
            self._check_uncommitted(self._uncommitted.size_bytes)
        else:
            self._show([piece])

    def checkpoint(self, checkpoint_id: int) -> bytes:
        """Return an empty state, because the records are kept only in this process."""
        return b""

    def checkpoint_completed(self, checkpoint_id: int) -> None:
        if self._uncommitted is not None:
            self._show(self._uncommitted.published(checkpoint_id))

    def checkpoint_aborted(self, checkpoint_id: int) -> None:
        """Do nothing: a later checkpoint covers the same records."""

    def reset(self, checkpoint_id: int | None, state: bytes | None) -> None:
        if self._uncommitted is not None:
            self._show(self._uncommitted.all_restored(checkpoint_id))

    def subtask_reset(self, subtask_index: int, checkpoint_id: int | None) -> None:
        if self._uncommitted is not None:
            self._show(self._uncommitted.restored(subtask_index, checkpoint_id))

    def _check_uncommitted(self, size_bytes: int) -> None:
        size_max = _UNCOMMITTED_FACTOR * self._buffer_size_max
        if size_bytes > size_max and not self._has_exceeded:
            self._has_exceeded = True
            name = self._context.operator_name
            self._context.fail_job(CollectBufferExceededError(name, size_bytes, size_max))

    def _show(self, pieces: Sequence[CollectedPiece]) -> None:
        self._pieces.extend(pieces)
        self._size_bytes += sum(len(piece.content) for piece in pieces)

    @property
    def size_bytes(self) -> int:
        """Bytes that the client has not fetched yet."""
        return self._size_bytes

    @property
    def _buffered_bytes(self) -> int:
        waiting = self._uncommitted
        return self._size_bytes + (0 if waiting is None else waiting.size_bytes)

    def fetch(self, offset: int, max_piece_count: int) -> CollectedResults:
        """Forget pieces before `offset` and return those from there on, in a reply of bounded size."""
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
        has_all = self._has_ended or (not self._open_subtasks and self._uncommitted is None)
        is_last = len(chosen) == len(self._pieces) and has_all
        return CollectedResults(self._first_offset, tuple(chosen), is_last, self._id)

    def end(self) -> None:
        """Record that no more records will follow."""
        self._has_ended = True

    def _finish(self) -> None:
        if self._uncommitted is not None:
            self._show(self._uncommitted.take_all())

    async def job_finishing(self) -> None:
        """Release all pieces: all records have arrived, because reports keep their order with events."""
        self._finish()
        self.end()

    async def close(self) -> None:
        """Expect no further records; those collected stay for the client."""
        self.end()


def _is_exactly_once(settings: Settings) -> bool:
    is_on = settings.duration_ms(INTERVAL) > 0
    return is_on and member_of(CheckpointingMode, settings, MODE) is CheckpointingMode.EXACTLY_ONCE
