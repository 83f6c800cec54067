"""CheckpointStore: the completed checkpoints of one job, in its checkpoint storage. Every call may block.

Source: Flink DefaultCompletedCheckpointStore, CheckpointIDCounter, CheckpointsCleaner,
CheckpointStorageCoordinatorView and CheckpointCoordinator.restoreSavepoint.
"""

import logging
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

import msgspec

from headrace.checkpoint.errors import (
    CheckpointCorruptedError,
    CheckpointError,
    CheckpointFencedError,
    CheckpointStorageError,
    SnapshotDrainedError,
)
from headrace.checkpoint.handles import StateFile
from headrace.checkpoint.metadata import CheckpointMetadata, CompletedCheckpoint
from headrace.checkpoint.options import (
    CHECKPOINT_DIRECTORY,
    CREATE_SUBDIR,
    FORK,
    NUM_RETAINED,
    PARALLEL_CLEANER,
    RECOVERY_CLAIM_MODE,
    RECOVERY_PATH,
    RETENTION,
    SHARED_FILES,
    CheckpointStorageKind,
    ClaimMode,
    ExternalizedCheckpointRetention,
    member_of,
    storage_kind,
)
from headrace.checkpoint.retention.cleaner import (
    PARALLEL_THREADS,
    CheckpointCleaner,
    orphans_in,
    perform_deletion,
)
from headrace.checkpoint.retention.completed_store import (
    CompletedCheckpointStore,
    Deletion,
    is_kept,
)
from headrace.checkpoint.storage.checkpoint_storage import (
    CheckpointStorage,
    completed_in,
    job_folder,
    load_completed,
    load_snapshot,
    open_checkpoint_storage,
)
from headrace.checkpoint.storage.file_systems import (
    absolute_uri,
    child_uri,
    files_below,
    make_folder,
    parent_uri,
    remove_file,
    size_of,
)
from headrace.checkpoint.storage.lineages import (
    Lineage,
    LineageInMemory,
    StoredLineage,
    lineage_of_job,
)
from headrace.checkpoint.storage.metadata_format import METADATA_NAME
from headrace.checkpoint.storage.metadata_key import metadata_key
from headrace.cluster.leadership import always_leads
from headrace.core.barriers import CheckpointOptions, SnapshotKind
from headrace.core.clock import Clock
from headrace.core.config import Settings
from headrace.core.ids import JobId
from headrace.core.lifecycle import JobStatus
from headrace.core.randomness import SeededRandom
from headrace.core.threads import BlockingStarter, start_thread

_LOG: Final = logging.getLogger(__name__)
_CLOSE_TIMEOUT_S: Final = 60.0


@dataclass(frozen=True)
class CheckpointsLeft:
    """Checkpoints that remain at a job's end. `kept_uri` is the newest one that stays, empty if none does.

    `not_deleted`: folders and files that should be deleted, but could not be. `cause`: the reason.
    """

    kept_uri: str = ""
    has_deleted: bool = False
    not_deleted: tuple[str, ...] = ()
    cause: str = ""


class CheckpointStore:
    """Checkpoints of one job under one JobMaster. Calls come one at a time, except those noted.

    `discard`, `register_shared` and `give_up_id` run concurrently with other calls. `settings` are the job's.
    `on_cleaning` is called with the number of deletions that are not done. `start` starts the threads that delete files
    in the background. `fence` raises if another process may lead the job by now: then nothing more is deleted.
    """

    def __init__(
        self,
        settings: Settings,
        job_id: JobId,
        clock: Clock,
        random: SeededRandom,
        on_cleaning: Callable[[int], None] = lambda count: None,
        start: BlockingStarter = start_thread,
        fence: Callable[[], None] = always_leads,
    ) -> None:
        self._settings: Final = settings
        self._job_id: Final = job_id
        self._clock: Final = clock
        self._random: Final = random
        self._retention: Final = member_of(ExternalizedCheckpointRetention, settings, RETENTION)
        self._claim_mode: Final = member_of(ClaimMode, settings, RECOVERY_CLAIM_MODE)
        self._kind: Final = storage_kind(settings)
        threads = PARALLEL_THREADS if settings.get_option(PARALLEL_CLEANER) else 1
        self._fence: Final = fence
        self._cleaner: Final = CheckpointCleaner(threads, on_cleaning, start, clock, fence)
        self._completed = CompletedCheckpointStore(settings.get_option(NUM_RETAINED))
        self._lineage: Lineage | None = None
        self._storage: CheckpointStorage | None = None
        self._has_recovered = False
        self._has_savepoint = False
        self._has_published = False
        self._is_ending = False
        self._told_held: Final[set[str]] = set()
        # `discard` and `register_shared` run concurrently with other calls, and need a stable set of complete
        # checkpoints.
        self._lock = threading.Lock()

    @property
    def lineage_id(self) -> str:
        """Hex digits that identify the lineage: they stay the same while state is carried forward.

        Only after `recover`.
        """
        return self._taken_over().lineage_id

    @property
    def epoch(self) -> int:
        """Number of this driver's start within the lineage. Only after `recover`."""
        return self._taken_over().epoch

    @property
    def cleaning_count(self) -> int:
        """Number of deletions that are not done."""
        return self._cleaner.waiting_count

    @property
    def retained_ids(self) -> frozenset[int]:
        """Ids of the checkpoints that are kept, without those replaced by newer ones."""
        return frozenset(one.checkpoint_id for one in self._completed.all)

    def recover(self) -> CompletedCheckpoint | None:
        """Take over the lineage and return the snapshot from which the job starts. Must be the first call, once.

        This is the newest checkpoint, or else the snapshot in the settings. CheckpointError if the job must not start.
        """
        own = self._own_checkpoints()
        start = None if own else self._named_snapshot()
        newest = own[-1] if own else start
        self._lineage = self._take_over(newest, is_fork=not own and self._is_fork)
        self._storage = open_checkpoint_storage(
            self._settings, self._job_id, self._lineage, self._random
        )
        self._storage.prepare()
        if start is not None:
            # It may be restored again: the record of its lineage must contain the ids used since.
            self._has_savepoint = True
            is_claimed = self._claim_mode is ClaimMode.CLAIM and not self._is_fork
            self._completed.restore(start, is_claimed=is_claimed)
        # Checkpoints that an earlier driver published until this one shut it out count as well.
        published = self._own_checkpoints()
        for checkpoint in published:
            self._delete(self._completed.add(checkpoint))
        for savepoint in self._savepoints_of_the_end():
            self._has_savepoint = True
            self._delete(self._completed.add_savepoint(savepoint))
        # Checkpoints given up at once go to the cleaner, which waits for their readers.
        self._sweep([*self._completed.all, *published])
        latest = self._completed.latest
        if latest is not None:
            verify_files(latest)
        self._has_recovered = True
        return latest

    def latest(self) -> CompletedCheckpoint | None:
        """Return the checkpoint from which the job restarts: the newest complete one, or the result of `recover`."""
        return self._completed.latest

    def take_id(self) -> int:
        """Return the next id of the lineage, which is assigned only once.

        CheckpointStorageError if it cannot be stored.
        """
        return self._taken_over().take_id(self._opened().checkpoint_folder)

    def give_up_id(self, checkpoint_id: int) -> None:
        """Record that no snapshot will have this id. Does not block."""
        self._taken_over().decided(checkpoint_id)

    def locate(
        self, checkpoint_id: int, options: CheckpointOptions, target: str
    ) -> CheckpointOptions:
        """Create the location of a snapshot; return `options` with its URIs.

        Until a checkpoint of this job is complete, a snapshot may refer only to its own files. CheckpointStorageError
        if the storage fails; ConfigurationError if no folder is configured.
        """
        located = self._opened().locate(checkpoint_id, options, target)
        if options.kind is SnapshotKind.CHECKPOINT and not self._completed.has_own:
            return msgspec.structs.replace(located, kind=SnapshotKind.FULL_CHECKPOINT)
        return located

    def publish(
        self, metadata: CheckpointMetadata, options: CheckpointOptions
    ) -> CompletedCheckpoint:
        """Make a snapshot durable, and only then delete the checkpoints that it replaces.

        CheckpointFencedError or CheckpointExistsError if this JobMaster is no longer the leader.
        PublicationUnknownError if it may or may not be complete. Any other CheckpointStorageError if it never will be.
        """
        self._has_published = True
        checkpoint = self._opened().publish(metadata, options)
        self._taken_over().decided(metadata.checkpoint_id)
        if metadata.kind.is_savepoint:
            self._has_savepoint = True
            return checkpoint
        with self._lock:
            deletions = self._completed.add(checkpoint)
        self._delete(deletions)
        return checkpoint

    def register_shared(self, checkpoint_id: int, files: Iterable[StateFile]) -> None:
        """Record that shared files belong to a checkpoint, even if it fails."""
        with self._lock:
            self._completed.shared.register(checkpoint_id, files)

    def discard(
        self, checkpoint_id: int, options: CheckpointOptions, files: Iterable[StateFile]
    ) -> None:
        """Delete a failed snapshot's files, but none that are shared or belong to a complete checkpoint."""
        with self._lock:
            complete = [one for one in self._completed.all if one.checkpoint_id == checkpoint_id]
            used = {file.uri for one in complete for file in one.metadata.files()}
        own = tuple(
            file.uri for file in files if file.uri and not file.is_shared and file.uri not in used
        )
        folder = "" if complete else options.exclusive_uri
        if folder:
            self._taken_over().decided(checkpoint_id)
        perform_deletion(Deletion(checkpoint_id, folder, own), self._fence)

    def close(self, status: JobStatus, *, keeps_latest: bool = False) -> CheckpointsLeft:
        """Delete the checkpoints that must not outlive the job; return when all are deleted, or after a minute.

        `status` is the job's last one, or SUSPENDED. `keeps_latest`: keep the newest checkpoint in any case, because
        its output is not committed. A driver whose successor has taken over deletes no checkpoints. Another call
        retries the deletions that failed.
        """
        if self._storage is None or not self._has_recovered:
            return CheckpointsLeft()
        try:
            if not self._is_ending:
                self._taken_over().validate_epoch()
        except CheckpointFencedError as error:
            _LOG.warning("could not delete checkpoints of job %s: %s", self._job_id, error)
            return CheckpointsLeft()
        except CheckpointError as error:
            _LOG.info("checkpoints of job %s could not be deleted yet: %s", self._job_id, error)
            folder = self._storage.checkpoint_folder
            return CheckpointsLeft(not_deleted=(folder,), cause=str(error))
        with self._lock:
            deletions = self._completed.end(status, self._retention, keeps_latest=keeps_latest)
            kept = self._completed.latest
            is_empty = not self._completed.all
        self._delete(deletions)
        if status.is_globally_terminal_state():
            self._cleaner.try_failed_again()
        is_done = self._cleaner.wait_until_done(_CLOSE_TIMEOUT_S)
        if not is_done:
            _LOG.warning("%d checkpoints are still being deleted", self._cleaner.waiting_count)
        # If a publication was begun, a checkpoint may be complete that is not known here.
        has_none = status is JobStatus.FAILED and not self._has_published
        is_over = is_empty and (has_none or not is_kept(status, self._retention))
        held = self._cleaner.held_folders
        left, causes = list(self._cleaner.failed_uris), [self._cleaner.cause]
        if status.is_globally_terminal_state():
            for deletion in self._leave_held(held, is_over=is_over):
                left += deletion.uris
                causes.append(deletion.cause)
        if is_over and self._owns_folder and not held:
            folder = Deletion(0, self._storage.checkpoint_folder, is_repeated=bool(left))
            # A folder cannot be deleted while others delete in it, and must not be deleted while it may be read.
            is_free = is_done and not self._cleaner.not_seen_folders
            folder = perform_deletion(folder, self._fence) if is_free else folder
            left[:0] = folder.uris
            causes.append(folder.cause)
        elif not is_done:
            left.append(self._storage.checkpoint_folder)
        ends = is_over and self._owns_folder and not self._has_savepoint
        # While files are left, a later retry still needs the record.
        cause = self._leave_lineage(ends=ends and not left)
        if cause:
            left.append(self._taken_over().folder_uri)
            causes.append(cause)
        has_deleted = any(deletion.folder_uri for deletion in deletions)
        kept_uri = "" if kept is None else kept.uri
        if not (left and status.is_globally_terminal_state()):
            return CheckpointsLeft(kept_uri, has_deleted)
        cause = next(filter(None, causes), "the storage has not responded yet")
        return CheckpointsLeft(kept_uri, has_deleted, tuple(left), cause)

    def detach(self) -> None:
        """Stop reporting the number of pending deletions, because the job's JobMaster has ended."""
        self._cleaner.detach()

    def _leave_held(self, folders: Iterable[str], *, is_over: bool) -> list[Deletion]:
        """Leave the files of checkpoints that are being read, which nothing will delete later.

        If the job `is_over`, delete their metadata, and return what is left of these deletions.
        """
        left: list[Deletion] = []
        for folder in folders:
            if is_over:
                # No job starts from a checkpoint of a job that has ended.
                deletion = Deletion(0, "", (child_uri(folder, METADATA_NAME),))
                left.append(perform_deletion(deletion, self._fence))
            if folder not in self._told_held:
                _LOG.warning("not deleted because it is being read: %s; delete it later", folder)
            self._told_held.add(folder)
        return left

    def _leave_lineage(self, *, ends: bool) -> str:
        """End or keep the record of the lineage; return why it could not be deleted if it should be."""
        try:
            if ends:
                self._is_ending = True
                self._taken_over().end()
            else:
                self._taken_over().leave()
        except CheckpointError as error:
            if ends:
                return str(error)
            _LOG.warning("could not update the record of the job's lineage at its end: %s", error)
        return ""

    @property
    def _is_fork(self) -> bool:
        return self._settings.get_option(FORK)

    @property
    def _owns_folder(self) -> bool:
        is_own = self._settings.get_option(CREATE_SUBDIR)
        return is_own and self._kind is CheckpointStorageKind.FILESYSTEM

    def _own_checkpoints(self) -> list[CompletedCheckpoint]:
        """Return the checkpoints that an earlier driver of this same job has published."""
        if not self._owns_folder:
            return []
        return completed_in(job_folder(self._settings, self._job_id), metadata_key(self._settings))

    def _savepoints_of_the_end(self) -> list[CompletedCheckpoint]:
        """Return the savepoint with which an earlier driver was stopping the job when it died.

        Its output is committed, so that the job continues from it. SnapshotDrainedError if event time had ended.
        """
        found: list[CompletedCheckpoint] = []
        for folder in self._taken_over().earlier_savepoints:
            savepoint = load_completed(folder, metadata_key(self._settings))
            latest = self._completed.latest
            if savepoint is None or not savepoint.metadata.kind.is_synchronous:
                continue
            # Another job of the lineage may start from any older checkpoint.
            is_behind = latest is not None and savepoint.checkpoint_id <= latest.checkpoint_id
            if is_behind or savepoint.metadata.job_id != self._job_id:
                continue
            if savepoint.metadata.is_drained:
                raise SnapshotDrainedError(savepoint.uri)
            found.append(savepoint)
        return found[-1:]

    def _named_snapshot(self) -> CompletedCheckpoint | None:
        path = self._settings.get_option(RECOVERY_PATH)
        if not path:
            return None
        snapshot = load_snapshot(path, self._settings)
        if snapshot.metadata.is_drained:
            raise SnapshotDrainedError(snapshot.uri)
        if self._is_fork:
            metadata = snapshot.metadata.without_commits()
            return CompletedCheckpoint(metadata, snapshot.uri, snapshot.metadata_bytes)
        return snapshot

    def _take_over(self, newest: CompletedCheckpoint | None, *, is_fork: bool) -> Lineage:
        floor_id = 0 if newest is None else newest.checkpoint_id
        known = "" if newest is None or is_fork else newest.metadata.lineage
        lineage_id = known or self._random.randbytes(16).hex()
        if self._kind is CheckpointStorageKind.JOBMANAGER:
            return LineageInMemory(lineage_id, floor_id)
        directory = absolute_uri(self._settings.get_option(CHECKPOINT_DIRECTORY))
        key = metadata_key(self._settings)
        is_shared = self._settings.get_option(SHARED_FILES)
        if self._owns_folder:
            folder = job_folder(self._settings, self._job_id)
            token = self._random.randbytes(8).hex()
            make_folder(folder, is_shared=is_shared)
            lineage_id = lineage_of_job(folder, self._job_id, lineage_id, token, key)
        return StoredLineage.take_over(
            directory,
            lineage_id,
            floor_id,
            self._clock,
            self._random,
            key,
            is_new=not known,
            is_shared=is_shared,
        )

    def _sweep(self, complete: Iterable[CompletedCheckpoint]) -> None:
        """Delete files of earlier drivers that no complete checkpoint needs."""
        if not self._owns_folder:
            return
        try:
            folder = self._opened().checkpoint_folder
            for entry in orphans_in(files_below(folder), complete):
                remove_file(entry.uri)
        except CheckpointStorageError as error:
            _LOG.warning("could not delete files of earlier attempts: %s", error)

    def _delete(self, deletions: Iterable[Deletion]) -> None:
        for deletion in deletions:
            self._cleaner.delete(deletion)

    def _taken_over(self) -> Lineage:
        assert self._lineage is not None, "recover comes first"
        return self._lineage

    def _opened(self) -> CheckpointStorage:
        assert self._storage is not None, "recover comes first"
        return self._storage


def verify_files(checkpoint: CompletedCheckpoint) -> None:
    """Check that every file exists in its full length, before any task starts. CheckpointCorruptedError if not."""
    listed = _listed_sizes(checkpoint)
    for operator in checkpoint.metadata.operators:
        for index, state in operator.subtasks.items():
            for chunk in state.chunks:
                file = chunk.file
                if not file.uri or listed.get(file.uri) == file.size_bytes:
                    continue
                # A listing may lag behind: check files that it does not show by name.
                found = size_of(file.uri)
                if found != file.size_bytes:
                    what = (
                        "the file is missing"
                        if found is None
                        else f"the file has {found} bytes instead of {file.size_bytes}"
                    )
                    raise CheckpointCorruptedError(
                        file.uri,
                        f"{what}; checkpoint {checkpoint.checkpoint_id} needs it for "
                        f"subtask {index} of {operator.title}",
                    )


def _listed_sizes(checkpoint: CompletedCheckpoint) -> dict[str, int]:
    """Return the sizes by URI of all files in the folders of a checkpoint; one request covers many files."""
    folders = {parent_uri(file.uri) for file in checkpoint.metadata.files()}
    return {
        entry.uri: entry.size_bytes
        for folder in sorted(folders)
        for entry in files_below(folder, is_recursive=False)
    }
