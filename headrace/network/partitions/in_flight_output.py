r"""InFlightOutput: the batches that a barrier overtakes in one partition, known at once or later.

    OPEN --every subpartition has answered--> COMPLETE
      \--abandon--> ABANDONED

For a barrier that overtakes from the start, subpartitions answer at once with their queued batches. One that may time
out is queued: each subpartition answers with nothing when its consumer takes the barrier in order, or with the
overtaken batches after the time-out. Source: Flink PipelinedSubpartition, ChannelStateWriter.ChannelStateWriteResult;
FLINK-27251.
"""

import threading
from collections.abc import Callable, Sequence

from headrace.network.batches.sealed_batch import SealedBatch


class InFlightOutput:
    """Collects the answers of the subpartitions. All methods may be called on any thread."""

    def __init__(self, subpartition_count: int) -> None:
        # Guards the fields below: consumers answer on their threads, the task's time-out and end run on others.
        self._lock = threading.Lock()
        self._answers: list[Sequence[SealedBatch] | None] = [None] * subpartition_count
        self._open_count = subpartition_count
        self._is_abandoned = False
        self._callbacks: list[Callable[[], None]] = []

    @property
    def is_done(self) -> bool:
        """Return whether no more answers will come."""
        return self._open_count == 0 or self._is_abandoned

    @property
    def is_complete(self) -> bool:
        """Return whether every subpartition has answered."""
        return self._open_count == 0

    def answer(self, index: int, batches: Sequence[SealedBatch]) -> None:
        """Record that the barrier left subpartition `index` and overtook `batches`. The first answer counts."""
        with self._lock:
            if self._is_abandoned or self._answers[index] is not None:
                return
            self._answers[index] = batches
            self._open_count -= 1
            calls = self._take_callbacks()
        for call in calls:
            call()

    def abandon(self) -> None:
        """Give up because the checkpoint or the partition has ended. No effect once complete."""
        with self._lock:
            if self.is_done:
                return
            self._is_abandoned = True
            self._answers.clear()
            calls = self._take_callbacks()
        for call in calls:
            call()

    def on_done(self, callback: Callable[[], None]) -> None:
        """Call `callback` once, on any thread, when no more answers will come; immediately if so now."""
        with self._lock:
            if not self.is_done:
                self._callbacks.append(callback)
                return
        callback()

    def overtaken(self) -> list[tuple[int, Sequence[SealedBatch]]]:
        """Return the overtaken batches with the indices of their subpartitions; only once complete."""
        assert self.is_complete
        return [(index, batches) for index, batches in enumerate(self._answers) if batches]

    def _take_callbacks(self) -> list[Callable[[], None]]:
        if not self.is_done:
            return []
        callbacks, self._callbacks = self._callbacks, []
        return callbacks
