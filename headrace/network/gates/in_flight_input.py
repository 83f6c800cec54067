r"""Captures the in-flight input of a task for an unaligned checkpoint, channel by channel.

    IDLE --start, its barrier is not here--> COLLECTING --its barrier arrives--> IDLE
      \--start, its barrier is here: takes the batches queued before it--> IDLE

Rows are copied out of network memory, so that a slow checkpoint storage never holds credit back.
Source: Flink ChannelStatePersister.
"""

import threading
from collections import deque
from typing import Any, Final

import pyarrow as pa

from headrace.core.elements import PlacedMarker
from headrace.network.batches.sealed_batch import read_batch

_BARRIERS_MAX: Final = 16


class CapturedBatch:
    """Rows captured on a channel with their markers. Rows from another process are still an Arrow message."""

    __slots__ = ("_arrow", "_is_verified", "_message", "_peer", "_schema", "markers", "row_count")

    def __init__(self, arrow: pa.RecordBatch | None, markers: tuple[PlacedMarker, ...]) -> None:
        self._arrow = arrow
        self.markers: Final = markers
        self.row_count: int = 0 if arrow is None else arrow.num_rows
        self._message: bytes | None = None

    @classmethod
    def of_message(
        cls,
        message: Any,
        schema: pa.Schema | None,
        row_count: int,
        markers: tuple[PlacedMarker, ...],
        peer: str,
        is_verified: bool,
    ) -> "CapturedBatch":
        """Copy a batch that has not been parsed yet; `schema` is None if there are only markers."""
        made = cls(None, markers)
        if schema is None:
            return made
        made.row_count = row_count
        made._message = message if isinstance(message, bytes) else bytes(memoryview(message))
        made._schema, made._peer, made._is_verified = schema, peer, is_verified
        return made

    def read(self) -> pa.RecordBatch | None:
        """Return the rows, or None if there are only markers. Any thread. CorruptBatchError for an invalid message."""
        if self._message is None:
            return self._arrow
        return read_batch(
            self._message, self._schema, self.row_count, self._peer, is_verified=self._is_verified
        )


class InFlightInput:
    """Captures batches from the queue of one channel.

    If another thread fills the queue, the caller holds `lock` around each call together with its own queue access.
    """

    def __init__(self) -> None:
        # The network's thread queues arrivals; the task's thread reads the whole queue and starts the capture.
        self.lock: Final = threading.Lock()
        self.is_collecting = False
        self._checkpoint_id = 0
        # Several barriers if checkpoints were aborted; they may arrive in another order than they were started.
        self._barriers: deque[tuple[int, int]] = deque(maxlen=_BARRIERS_MAX)
        self._batches: list[CapturedBatch] = []

    def barrier_arrived(self, checkpoint_id: int, sequence: int) -> None:
        """Record the arrival of a barrier, whatever its position in the queue."""
        self._barriers.append((checkpoint_id, sequence))
        if checkpoint_id >= self._checkpoint_id:
            self.is_collecting = False

    def start(self, checkpoint_id: int) -> int | None:
        """Start the capture.

        Return the sequence number of the barrier that ends the queued part, or None if all is part of it.
        """
        self._checkpoint_id = checkpoint_id
        self._batches = []
        # Its own barrier, or a newer one that overtook it: the checkpoint is over then.
        end = min((each for each in self._barriers if each[0] >= checkpoint_id), default=None)
        self.is_collecting = end is None
        return None if end is None else end[1]

    def add(self, batch: CapturedBatch) -> None:
        """Add a batch that was queued at the start, or arrived during the capture."""
        self._batches.append(batch)

    def stop(self, checkpoint_id: int) -> list[CapturedBatch]:
        """End the capture; return its batches, or none if another checkpoint started a capture meanwhile."""
        if checkpoint_id != self._checkpoint_id:
            return []
        self.is_collecting = False
        batches, self._batches = self._batches, []
        return batches
