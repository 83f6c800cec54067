"""CheckpointCleaner: deletes obsolete snapshots and orphaned files in the background.

Waiting deletions are counted, so that they can be bounded. HeldDeletions holds back those of snapshots that are read
under a lease, which do not count as waiting; they are checked again with every further deletion, which each new
checkpoint causes. Files that cannot be deleted are logged, and tried again at the end of the job; if the job does not
end, its next start finds them with `orphans_in`. `dispose_savepoint` deletes a savepoint at its user's request. Source:
Flink CheckpointsCleaner.
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
"""Maximum number of checkpoints held for readers; above it the oldest is deleted although it is read, to save storage.
"""
PARALLEL_THREADS: Final = 4
FAILED_MAX: Final = 256
"""Maximum number of remembered failed deletions; above it the oldest are left to `orphans_in`."""
_OWN: Final = re.compile(r"chk-\d+/(.+)")


class HeldDeletions:
    """Deletions that wait until their checkpoint is no longer read, in the order of the checkpoints. One thread.

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
        """Return the folders of the checkpoints that wait because the storage does not report whether they are read."""
        return tuple(uri for uri in self._folders if uri in self._not_seen)

    @property
    def cause(self) -> str:
        """Return the reason why the storage does not report readers; empty if it does."""
        return next(iter(self._not_seen.values()), "")

    @property
    def _folders(self) -> tuple[str, ...]:
        return tuple(one.folder_uri for one in self._held if one.folder_uri)

    def admit(self, deletion: Deletion) -> list[Deletion]:
        """Return the deletions that may be done now, of this one and the waiting ones.

        Their metadata is already deleted.
        """
        waiting = [*self._held, deletion]
        leased = [one for one in waiting if self._is_read(one)]
        for one in leased[:-HELD_MAX]:
            _LOG.warning(
                "%s is deleted although it is being read, because more than %d checkpoints wait for their readers",
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
            # From here on no reader can begin; a reader that began just before has already written its lease.
            remove_file(child_uri(folder, METADATA_NAME))
            return self._is_leased(folder)
        except Exception as error:  # others go on, and this one is looked at again
            self._not_seen[folder] = str(error)
            _LOG.log(
                logging.DEBUG if is_known else logging.WARNING,
                "cannot find out whether %s is being read, so it is deleted later: %s", folder, error,
            )  # fmt: skip
            return True

    def _is_leased(self, folder: str) -> bool:
        leases = live_leases(folder, self._clock.now_ms())
        if leases and folder not in self.folders:
            _LOG.info("%s is deleted later: %s reads it", folder, leases[0].holder)
        return bool(leases)


class CheckpointCleaner:
    """Deletes snapshots on up to `thread_count` threads, which exist only while there is work. Any thread may call.

    `on_changed` is called with each `waiting_count` in order, on the thread that changed it, and must not block.
    `fence` raises if another process may have continued the job: then nothing is deleted any more.
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
        """Return the folders of checkpoints that are deleted once they are no longer read."""
        with self._condition:
            return self._held_folders

    @property
    def not_seen_folders(self) -> tuple[str, ...]:
        """Return the folders of checkpoints of which the storage does not report whether they are read."""
        with self._condition:
            return self._not_seen

    @property
    def failed_uris(self) -> tuple[str, ...]:
        """Return the folders of checkpoints, and the files, that could not be deleted so far."""
        with self._condition:
            return (*self._not_seen, *(uri for one in self._failed for uri in one.uris))

    @property
    def cause(self) -> str:
        """Return the reason why one of `failed_uris` could not be deleted; empty if there are none."""
        with self._condition:
            return next((one.cause for one in self._failed), self._not_seen_cause)

    def detach(self) -> None:
        """Stop reporting the number of waiting deletions, because its consumer has ended."""
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
        """Retry failed deletions in the background."""
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
        """Wait at most `timeout_s` until everything is deleted; return whether it is."""
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
    """Delete files and folder; log failures, and return them. `fence` is called before each step, and may raise."""
    level = logging.DEBUG if deletion.is_repeated else logging.WARNING
    folder, cause = deletion.folder_uri, ""
    # Delete the metadata first: a folder without it is not a checkpoint, even if other files are left.
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
    """Run the action; return the reason if it failed, else an empty string."""
    try:
        action()
    except Exception as error:  # an installed file system may raise any error
        _LOG.log(level, "a file was not deleted: %s", error)
        return str(error) or type(error).__name__
    return ""


def orphans_in(
    files: Iterable[FileEntry], completed: Iterable[CompletedCheckpoint]
) -> list[FileEntry]:
    """Return those of a job's `files` to which no complete checkpoint refers, as failures leave them. Pure.

    Called when a driver has taken over but has not begun any checkpoint, so that incomplete ones will never be
    complete. Metadata files are kept: they belong to a complete checkpoint, or prevent one from being published. Leases
    on complete checkpoints, and files outside the folders of checkpoints and `shared`, are kept too.
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

    SnapshotLeasedError if it is being read: then nothing was deleted. A reader that begins at the same time gets an
    error.
    """
    clock = SystemClock() if clock is None else clock
    snapshot = load_snapshot(path, settings)
    if not snapshot.metadata.kind.is_savepoint:
        raise MetadataError(
            f"{snapshot.uri} is a checkpoint, to which other checkpoints may refer: only savepoints can be disposed of"
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
