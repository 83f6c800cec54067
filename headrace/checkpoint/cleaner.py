"""Deletes what checkpoints leave behind, beside everything else.

How much is waiting is known, so that it can be bounded. What somebody reads under a lease is deleted later, and does
not count as waiting. What cannot be deleted is left lying and told in the log: the next start of the job sweeps it up.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable
from typing import Final

from headrace.checkpoint.completed_store import Deletion
from headrace.checkpoint.file_systems import child_uri, remove_file, remove_folder
from headrace.checkpoint.held_deletions import HeldDeletions
from headrace.checkpoint.metadata_format import METADATA_NAME
from headrace.core.clock import Clock, SystemClock
from headrace.core.threads import start_thread

_LOG: Final = logging.getLogger(__name__)
PARALLEL_THREADS: Final = 4


class CheckpointCleaner:
    """Up to `thread_count` threads, which live only while there is something to do. Any thread may call.

    `on_changed` is called with `waiting_count`, on the thread that changed it and before any other changes it again: it
    hears the counts in order, and must not block.
    """

    def __init__(
        self,
        thread_count: int,
        on_changed: Callable[[int], None] = lambda count: None,
        start: Callable[[str, Callable[[], None]], object] = start_thread,
        clock: Clock | None = None,
    ) -> None:
        self._thread_count = thread_count
        self._on_changed = on_changed
        self._start = start
        # Threads take from it what the coordinator's thread puts there, and the last one tells that it is empty.
        self._condition = threading.Condition()
        self._waiting: deque[Deletion] = deque()
        self._running_count = 0
        self._unfinished_count = 0
        # One looks after the other, in order: a shared file goes only when it is known who reads earlier checkpoints.
        self._looking = threading.Lock()
        self._held = HeldDeletions(SystemClock() if clock is None else clock)
        # As of the last look. To ask `_held` itself would be to wait for the storage.
        self._held_folders: tuple[str, ...] = ()

    @property
    def held_folders(self) -> tuple[str, ...]:
        """Folders of checkpoints that are deleted when nobody reads them any more."""
        with self._condition:
            return self._held_folders

    @property
    def waiting_count(self) -> int:
        """How many deletions are not done."""
        return self._unfinished_count

    def delete(self, deletion: Deletion) -> None:
        """Delete it, soon."""
        if deletion.is_empty:
            return
        with self._condition:
            self._waiting.append(deletion)
            self._unfinished_count += 1
            needs_thread = self._running_count < self._thread_count
            self._running_count += needs_thread
            self._on_changed(self._unfinished_count)
        if needs_thread:
            self._start("checkpoint-cleaner", self._run)

    def wait_until_done(self, timeout_s: float) -> bool:
        """Wait until everything is deleted, or not any longer; say which."""
        with self._condition:
            return self._condition.wait_for(lambda: self._unfinished_count == 0, timeout_s)

    def _run(self) -> None:
        while True:
            with self._looking:
                with self._condition:
                    if not self._waiting:
                        self._running_count -= 1
                        return
                    deletion = self._waiting.popleft()
                admitted = self._held.admit(deletion)
                with self._condition:
                    self._held_folders = self._held.folders
            try:
                for one in admitted:
                    perform_deletion(one)
            finally:
                with self._condition:
                    self._unfinished_count -= 1
                    self._condition.notify_all()
                    self._on_changed(self._unfinished_count)


def perform_deletion(deletion: Deletion) -> None:
    """Delete files and folder; what fails is told in the log."""
    # The metadata goes first: a folder without it is no checkpoint, however much of it is left.
    if deletion.folder_uri:
        _attempt(lambda: remove_file(child_uri(deletion.folder_uri, METADATA_NAME)))
        _attempt(lambda: remove_folder(deletion.folder_uri))
    for uri in deletion.file_uris:
        _attempt(lambda uri=uri: remove_file(uri))


def _attempt(action: Callable[[], None]) -> None:
    try:
        action()
    except Exception as error:  # of a file system that somebody installed, any may come
        _LOG.warning("left lying: %s", error)
