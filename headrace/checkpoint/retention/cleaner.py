"""CheckpointCleaner: deletes obsolete snapshots and orphaned files in the background.

Waiting deletions are counted, so that they can be bounded. HeldDeletions holds back those of snapshots that somebody
reads under a lease, which do not count as waiting; they are looked at again with every further deletion, as each new
checkpoint brings one. Files that cannot be deleted are logged, and remembered for the end of the job, which tries them
again; where the job does not end, its next start finds them with `orphans_in`.
`dispose_savepoint` deletes a savepoint at its user's request. Source: Flink CheckpointsCleaner.
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
from headrace.core.errors import HeadraceError
from headrace.core.process.failpoints import Failpoint, reach
from headrace.core.threads import BlockingStarter, start_thread

_LOG: Final = logging.getLogger(__name__)
HELD_MAX: Final = 64
"""Checkpoints that wait for readers; of more, the oldest is deleted although it is read, as the storage is finite."""
PARALLEL_THREADS: Final = 4
FAILED_MAX: Final = 256
"""Deletions that failed and are remembered; of more, the oldest are left to `orphans_in`."""
_OWN: Final = re.compile(r"chk-\d+/(.+)")


class HeldDeletions:
    """Deletions that wait until nobody reads their checkpoint any more, in the order of the checkpoints. One thread.

    Files that the checkpoint shares with others wait with it, even if a later checkpoint is the last to refer to them.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._held: list[Deletion] = []
        self._not_seen: dict[str, str] = {}

    @property
    def folders(self) -> tuple[str, ...]:
        """Return the folders of the checkpoints that wait for a reader."""
        return tuple(uri for uri in self._folders if uri not in self._not_seen)

    @property
    def not_seen(self) -> tuple[str, ...]:
        """Return the folders of the checkpoints that wait because the storage does not tell whether one reads them."""
        return tuple(uri for uri in self._folders if uri in self._not_seen)

    @property
    def cause(self) -> str:
        """Return why the storage does not tell; empty where it does."""
        return next(iter(self._not_seen.values()), "")

    @property
    def _folders(self) -> tuple[str, ...]:
        return tuple(one.folder_uri for one in self._held if one.folder_uri)

    def admit(self, deletion: Deletion) -> list[Deletion]:
        """Return what may be deleted now, of this deletion and of those that wait: their metadata is gone already."""
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
        folders = set(self._folders)
        self._not_seen = {uri: why for uri, why in self._not_seen.items() if uri in folders}
        return admitted

    def _is_read(self, deletion: Deletion) -> bool:
        folder = deletion.folder_uri
        if not folder:
            return False
        is_known = folder in self._folders
        self._not_seen.pop(folder, None)
        try:
            if self._is_leased(folder):
                return True
            # From here on nobody begins to read it; a reader that began just now has written its lease before.
            remove_file(child_uri(folder, METADATA_NAME))
            return self._is_leased(folder)
        except Exception as error:  # others go on, and this one is looked at again
            self._not_seen[folder] = str(error)
            _LOG.log(
                logging.DEBUG if is_known else logging.WARNING,
                "cannot tell whether somebody reads %s, so it is deleted later: %s", folder, error,
            )  # fmt: skip
            return True

    def _is_leased(self, folder: str) -> bool:
        leases = live_leases(folder, self._clock.now_ms())
        if leases and folder not in self.folders:
            _LOG.info("%s is deleted later: %s reads it", folder, leases[0].holder)
        return bool(leases)


class CheckpointCleaner:
    """Up to `thread_count` threads, which live only while there is something to do. Any thread may call.

    `on_changed` is called with each `waiting_count` in order, on the thread that changed it, and must not block.
    `fence` raises where another process may have gone on with the job: then nothing is deleted any more.
    """

    def __init__(
        self,
        thread_count: int,
        on_changed: Callable[[int], None] = lambda count: None,
        start: BlockingStarter = start_thread,
        clock: Clock | None = None,
        fence: Callable[[], None] = lambda: None,
    ) -> None:
        self._thread_count = thread_count
        self._fence = fence
        self._on_changed = on_changed
        self._start = start
        # Guards the queue that the coordinator's thread fills and these threads empty; notified after each deletion.
        self._condition = threading.Condition()
        self._waiting: deque[Deletion] = deque()
        self._running_count = 0
        self._unfinished_count = 0
        # Deletions are admitted in order: a shared file goes only when the readers of earlier checkpoints are known.
        self._looking = threading.Lock()
        self._held = HeldDeletions(SystemClock() if clock is None else clock)
        # As of the last look: `_held` itself may be waiting for the storage.
        self._held_folders: tuple[str, ...] = ()
        self._not_seen: tuple[str, ...] = ()
        self._not_seen_cause = ""
        self._failed: deque[Deletion] = deque(maxlen=FAILED_MAX)

    @property
    def held_folders(self) -> tuple[str, ...]:
        """Return the folders of checkpoints that are deleted when nobody reads them any more."""
        with self._condition:
            return self._held_folders

    @property
    def not_seen_folders(self) -> tuple[str, ...]:
        """Return the folders of checkpoints of which the storage does not tell whether somebody reads them."""
        with self._condition:
            return self._not_seen

    @property
    def failed_uris(self) -> tuple[str, ...]:
        """Return what could not be deleted so far: folders of checkpoints, and files."""
        with self._condition:
            return (*self._not_seen, *(uri for one in self._failed for uri in one.uris))

    @property
    def cause(self) -> str:
        """Return why one of `failed_uris` could not be deleted; empty where there are none."""
        with self._condition:
            return next((one.cause for one in self._failed), self._not_seen_cause)

    def detach(self) -> None:
        """Tell nobody any more how many deletions are not done: who counted them has ended."""
        self._on_changed = lambda count: None

    @property
    def waiting_count(self) -> int:
        """Return the number of deletions that are not done."""
        return self._unfinished_count

    def delete(self, deletion: Deletion) -> None:
        """Delete files in the background."""
        if not deletion.is_empty:
            self._add(deletion)

    def try_failed_again(self) -> None:
        """Delete in the background what could not be deleted before."""
        with self._condition:
            again = [*self._failed, *([Deletion(0, "")] if self._not_seen else [])]
            self._failed.clear()
        for one in again:
            self._add(dataclasses.replace(one, is_repeated=True))

    def _add(self, deletion: Deletion) -> None:
        with self._condition:
            self._waiting.append(deletion)
            self._unfinished_count += 1
            needs_thread = self._running_count < self._thread_count
            self._running_count += needs_thread
            self._on_changed(self._unfinished_count)
        if needs_thread:
            self._start("checkpoint-cleaner", self._run)

    def wait_until_done(self, timeout_s: float) -> bool:
        """Wait until everything is deleted, at most `timeout_s`; return whether it is."""
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
                    self._not_seen = self._held.not_seen
                    self._not_seen_cause = self._held.cause
            left: list[Deletion] = []
            try:
                left = [perform_deletion(one, self._fence) for one in admitted]
            except HeadraceError as error:
                _LOG.info("no checkpoint is deleted any more: %s", error)
            finally:
                with self._condition:
                    self._failed.extend(one for one in left if not one.is_empty)
                    self._unfinished_count -= 1
                    self._condition.notify_all()
                    self._on_changed(self._unfinished_count)


def perform_deletion(deletion: Deletion, fence: Callable[[], None] = lambda: None) -> Deletion:
    """Delete files and folder; log what fails, and return it. `fence` is called before each step, and may raise."""
    level = logging.DEBUG if deletion.is_repeated else logging.WARNING
    folder, cause = deletion.folder_uri, ""
    # The metadata goes first: a folder without it is no checkpoint, however much of it is left.
    if folder:
        fence()
        _attempt(lambda: remove_file(child_uri(deletion.folder_uri, METADATA_NAME)), level)
        reach(Failpoint.DELETING)
        fence()
        cause = _attempt(lambda: remove_folder(deletion.folder_uri), level)
        if not cause:
            folder = ""
    left: list[str] = []
    for uri in deletion.file_uris:
        fence()
        refusal = _attempt(lambda uri=uri: remove_file(uri), level)
        if refusal:
            left.append(uri)
            cause = cause or refusal
    return dataclasses.replace(deletion, folder_uri=folder, file_uris=tuple(left), cause=cause)


def _attempt(action: Callable[[], None], level: int) -> str:
    """Do it; return why it failed, or nothing."""
    try:
        action()
    except Exception as error:  # of a file system that somebody installed, any may come
        _LOG.log(level, "a file was not deleted: %s", error)
        return str(error) or type(error).__name__
    return ""


def orphans_in(
    files: Iterable[FileEntry], completed: Iterable[CompletedCheckpoint]
) -> list[FileEntry]:
    """Return those of a job's `files` that no complete checkpoint refers to, as failures leave them behind. Pure.

    Called when a driver has taken over and has not begun any checkpoint: incomplete ones will never be complete then.
    Metadata files stay: they are a complete checkpoint's, or prevent one from being published. So do leases on complete
    checkpoints, and files outside the folders of checkpoints and `shared`.
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
    """Delete a savepoint: first its metadata, then its files. MetadataError, CheckpointStorageError.

    SnapshotLeasedError if somebody reads it: nothing was deleted. A reader that begins just now is told that it was
    disposed of.
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
