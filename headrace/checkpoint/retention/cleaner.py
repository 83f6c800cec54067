"""Deletes what checkpoints leave behind, beside everything else.

Waiting deletions are counted, so that they can be bounded. Snapshots that are read under a lease are deleted later, and
do not count as waiting. Files that cannot be deleted are left and logged: the next start of the job deletes them.

HeldDeletions: deletions that wait until nobody reads the checkpoint any more.

They are looked at again whenever another deletion comes, as each new checkpoint brings one. What a checkpoint shares
with others waits with it, though a later one be the last to refer to it.

Also finds the files in a job's folder that no complete checkpoint refers to, as failures leave them behind. Pure.

Looked for when a driver has taken over and has not begun any checkpoint: then whatever is not complete never will be.

Deletes savepoints that their users want no more.
"""

import dataclasses
import logging
import re
import threading
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

from headrace.checkpoint.errors import MetadataError, SnapshotLeasedError
from headrace.checkpoint.metadata import CompletedCheckpoint
from headrace.checkpoint.retention.completed_store import Deletion
from headrace.checkpoint.retention.leases import LEASES_FOLDER, live_leases
from headrace.checkpoint.storage.checkpoint_storage import load_snapshot
from headrace.checkpoint.storage.file_systems import (
    FileEntry,
    child_uri,
    files_below,
    parent_uri,
    remove_file,
    remove_folder,
)
from headrace.checkpoint.storage.metadata_format import METADATA_NAME
from headrace.core.clock import Clock, SystemClock
from headrace.core.config import Settings
from headrace.core.threads import start_thread

_LOG: Final = logging.getLogger(__name__)
HELD_MAX: Final = 64
"""Checkpoints that wait for readers: of more, the oldest goes under its reader, for the storage has an end."""


class HeldDeletions:
    """One thread at a time; deletions come in the order in which their checkpoints were given up."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._held: list[Deletion] = []

    @property
    def folders(self) -> tuple[str, ...]:
        """Folders of the checkpoints that wait."""
        return tuple(one.folder_uri for one in self._held if one.folder_uri)

    def admit(self, deletion: Deletion) -> list[Deletion]:
        """Return what may be deleted now, of this one and of those that wait; metadata of it are gone already."""
        waiting = [*self._held, deletion]
        leased = [one for one in waiting if self._is_read(one)]
        for one in leased[:-HELD_MAX]:
            _LOG.warning(
                "%s is deleted although somebody reads it, because more than %d wait for their readers",
                one.folder_uri,
                HELD_MAX,
            )
        leased = leased[-HELD_MAX:]
        kept = {uri for one in leased for uri in one.shared_uris}
        self._held = []
        admitted: list[Deletion] = []
        for one in waiting:
            is_leased = any(one is other for other in leased)
            later = tuple(uri for uri in one.file_uris if is_leased or uri in kept)
            now = tuple(uri for uri in one.file_uris if uri not in later)
            folder = one.folder_uri if is_leased else ""
            if later or folder:
                held = dataclasses.replace(one, folder_uri=folder, file_uris=later)
                self._held.append(held)
            freed = dataclasses.replace(
                one, folder_uri="" if folder else one.folder_uri, file_uris=now
            )
            if not freed.is_empty:
                admitted.append(freed)
        return admitted

    def _is_read(self, deletion: Deletion) -> bool:
        folder = deletion.folder_uri
        if not folder:
            return False
        try:
            if self._is_leased(folder):
                return True
            # From here on nobody begins to read it; who has begun in this very moment has put a lease before.
            remove_file(child_uri(folder, METADATA_NAME))
            return self._is_leased(folder)
        except Exception as error:  # others go on, and this one is looked at again
            _LOG.warning(
                "cannot tell whether somebody reads %s, so it is deleted later: %s", folder, error
            )
            return True

    def _is_leased(self, folder: str) -> bool:
        leases = live_leases(folder, self._clock.now_ms())
        if leases and folder not in self.folders:
            _LOG.info("%s is deleted later: %s reads it", folder, leases[0].holder)
        return bool(leases)


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
        """Return the number of deletions that are not done."""
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
        _LOG.warning("a file was not deleted: %s", error)


_OWN: Final = re.compile(r"chk-\d+/(.+)")


def orphans_in(
    files: Iterable[FileEntry], completed: Iterable[CompletedCheckpoint]
) -> list[FileEntry]:
    """Return the files of checkpoints' folders and of `shared` that are referred to by none of `completed`.

    A metadata file stays in any case: either it is a complete checkpoint's, or it keeps one from being published. The
    leases on complete checkpoints stay too.
    Files elsewhere are not ours to judge.
    """
    completed = list(completed)
    used = {file.uri for one in completed for file in one.metadata.files()}
    leases = {child_uri(one.uri, LEASES_FOLDER) for one in completed}
    return [
        entry
        for entry in files
        if _is_judged(entry.relative_path)
        and entry.uri not in used
        and parent_uri(entry.uri) not in leases
    ]


def _is_judged(relative_path: str) -> bool:
    match = _OWN.fullmatch(relative_path)
    if match is not None:
        return match.group(1) not in (METADATA_NAME, f"{METADATA_NAME}.claim")
    return relative_path.startswith("shared/")


def dispose_savepoint(
    path: str, settings: Settings, clock: Clock | None = None
) -> CompletedCheckpoint:
    """Delete a savepoint: first what makes it one, then its files. MetadataError, CheckpointStorageError.

    SnapshotLeasedError where somebody reads it: nothing was deleted. There is no way back afterwards, so that whoever
    begins to read it in this very moment is told that it was disposed of.
    """
    clock = SystemClock() if clock is None else clock
    snapshot = load_snapshot(path, settings)
    if not snapshot.metadata.kind.is_savepoint:
        raise MetadataError(
            f"{snapshot.uri} is a checkpoint, which other checkpoints may refer to: only savepoints are disposed of"
        )
    _check_leases(snapshot.uri, clock)
    remove_file(child_uri(snapshot.uri, METADATA_NAME))
    for entry in files_below(snapshot.uri):
        remove_file(entry.uri)
    remove_folder(snapshot.uri)
    return snapshot


def _check_leases(snapshot_uri: str, clock: Clock) -> None:
    now_ms = clock.now_ms()
    leases = live_leases(snapshot_uri, now_ms)
    if leases:
        last = max(leases, key=lambda one: one.expires_ms)
        raise SnapshotLeasedError(
            snapshot_uri, last.holder, last.expires_ms, last.expires_ms - now_ms
        )
