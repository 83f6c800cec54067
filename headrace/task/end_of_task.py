"""EndOfTask: what a subtask still waits for between its end of data and its end.

With checkpoints, its last effects become final only with one that was taken after all rows were processed, here and
downstream; until then it stays and takes part. Source: Flink StreamTask.afterInvoke, FLIP-147.
"""

from collections.abc import Callable, Sequence
from typing import Final

from headrace.network.record_writer import RecordWriter


class EndOfTask:
    """Mailbox thread only; acknowledgements of consumers come from any."""

    def __init__(
        self, writers: Sequence[RecordWriter], wake: Callable[[], None], *, takes_checkpoints: bool
    ) -> None:
        self._writers: Final = writers
        self._wake: Final = wake
        self._waits: bool = takes_checkpoints
        self._unacknowledged = len(writers)
        self._final_id: int | None = None
        self._is_final_complete = False
        self.has_begun = False

    def begin(self, *, waits: bool) -> None:
        """All data was emitted. `waits`: a checkpoint is to come even where none are taken periodically."""
        self.has_begun = True
        self._waits = self._waits or waits
        if self._waits:
            for writer in self._writers:
                writer.partition.on_all_data_processed(self._acknowledged)

    def checkpoint_taken(self, checkpoint_id: int) -> None:
        """The subtask took part in a checkpoint."""
        if self.has_begun and self._final_id is None:
            self._final_id = checkpoint_id

    def checkpoint_completed(self, checkpoint_id: int) -> None:
        """A checkpoint is published; any that holds what came after the end of data will do."""
        if self._final_id is not None and checkpoint_id >= self._final_id:
            self._is_final_complete = True

    def wait_for(self, checkpoint_id: int) -> None:
        """The job stops with this checkpoint: exactly it must be complete."""
        self._waits = True
        self._final_id = checkpoint_id

    @property
    def may_leave(self) -> bool:
        """Whether nothing more is waited for."""
        if not self._waits:
            return True
        return self._unacknowledged == 0 and self._is_final_complete

    def _acknowledged(self) -> None:
        self._unacknowledged -= 1
        self._wake()
