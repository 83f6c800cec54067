"""CompletedCheckpointStore: keeps the newest completed checkpoints, and decides which outlive the job. Pure.

SharedFiles counts the references of checkpoints to shared files, so that a file is deleted with its last checkpoint.
Source: Flink DefaultCompletedCheckpointStore, CheckpointSubsumeHelper, SharedStateRegistryImpl.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Final

from headrace.checkpoint.errors import CheckpointCorruptedError
from headrace.checkpoint.handles import StateFile
from headrace.checkpoint.metadata import CompletedCheckpoint
from headrace.checkpoint.options import ExternalizedCheckpointRetention
from headrace.core.lifecycle import JobStatus


@dataclass
class _Entry:
    file: StateFile
    created_by: int
    last_used_by: int


class SharedFiles:
    """Remembers for each shared file the first checkpoint with it, and the highest one that refers to it."""

    def __init__(self) -> None:
        self._entries: dict[str, _Entry] = {}
        self._highest_not_claimed = 0

    def register(self, checkpoint_id: int, files: Iterable[StateFile]) -> None:
        """Remember the shared ones of `files` for a checkpoint, whether it completes or not.

        CheckpointCorruptedError if one name stands for two contents.
        """
        for file in files:
            if not (file.is_shared and file.uri):
                continue
            entry = self._entries.get(file.uri)
            if entry is None:
                self._entries[file.uri] = _Entry(file, checkpoint_id, checkpoint_id)
            elif entry.file.digest != file.digest:
                raise CheckpointCorruptedError(file.uri, "two different files have this name")
            else:
                entry.last_used_by = max(entry.last_used_by, checkpoint_id)

    def restored(self, checkpoint_id: int, *, is_claimed: bool) -> None:
        """Record a restored checkpoint.

        Unless it was claimed, files of it or of earlier checkpoints are never deleted.
        """
        if not is_claimed:
            self._highest_not_claimed = max(self._highest_not_claimed, checkpoint_id)

    def unused_below(self, lowest_retained_id: int) -> list[str]:
        """Forget files to which only lower checkpoints refer; return the files to be deleted."""
        unused = [
            uri for uri, one in self._entries.items() if one.last_used_by < lowest_retained_id
        ]
        entries = [(uri, self._entries.pop(uri)) for uri in unused]
        return sorted(uri for uri, one in entries if one.created_by > self._highest_not_claimed)

    def forget_all(self) -> list[str]:
        """Forget everything, at the end of a job; return the files to be deleted."""
        return self.unused_below(self._highest_used + 1)

    @property
    def _highest_used(self) -> int:
        return max((one.last_used_by for one in self._entries.values()), default=0)


@dataclass(frozen=True)
class Deletion:
    """Files to delete with one checkpoint: its folder (empty: none), then files to which no other one refers.

    `shared_uris`: all files outside its folder to which it refers, including those to which others refer.
    `is_repeated`: it has failed before, and was logged. `cause`: the reason of its failure.
    """

    checkpoint_id: int
    folder_uri: str
    file_uris: tuple[str, ...] = ()
    shared_uris: frozenset[str] = field(default=frozenset(), compare=False)
    is_repeated: bool = False
    cause: str = field(default="", compare=False)

    @property
    def uris(self) -> tuple[str, ...]:
        """Return its folder, if it has one, and its files."""
        return ((self.folder_uri,) if self.folder_uri else ()) + self.file_uris

    @property
    def is_empty(self) -> bool:
        """Return whether there is nothing to delete."""
        return not (self.folder_uri or self.file_uris)


class CompletedCheckpointStore:
    """The completed checkpoints of one job, oldest first, and the files that they share.

    A restored snapshot counts as one of them; unless it was claimed, no file of it is ever deleted.
    """

    def __init__(self, retained_count: int) -> None:
        assert retained_count >= 1
        self._retained_count: Final = retained_count
        self._checkpoints: list[CompletedCheckpoint] = []
        self._not_owned: set[int] = set()
        self.shared = SharedFiles()

    @property
    def all(self) -> tuple[CompletedCheckpoint, ...]:
        """Return all completed checkpoints, oldest first."""
        return tuple(self._checkpoints)

    @property
    def latest(self) -> CompletedCheckpoint | None:
        """Return the newest completed checkpoint, or None."""
        return self._checkpoints[-1] if self._checkpoints else None

    @property
    def has_own(self) -> bool:
        """Return whether one of the job's own checkpoints is complete, so that no other snapshot is needed."""
        return any(one.checkpoint_id not in self._not_owned for one in self._checkpoints)

    def restore(self, checkpoint: CompletedCheckpoint, *, is_claimed: bool) -> None:
        """Begin with a snapshot that the job did not make, or that it takes over."""
        if not is_claimed:
            self._not_owned.add(checkpoint.checkpoint_id)
        self.shared.restored(checkpoint.checkpoint_id, is_claimed=is_claimed)
        self._put(checkpoint)

    def add_savepoint(self, savepoint: CompletedCheckpoint) -> list[Deletion]:
        """Continue from a savepoint that this job has made: it subsumes older ones, but belongs to its user."""
        self._not_owned.add(savepoint.checkpoint_id)
        return self.add(savepoint)

    def add(self, checkpoint: CompletedCheckpoint) -> list[Deletion]:
        """Keep a published checkpoint; return the deletions of those that it subsumes, oldest first."""
        self._put(checkpoint)
        given_up = self._subsumed()
        lowest = self._checkpoints[0].checkpoint_id
        unused = tuple(self.shared.unused_below(lowest))
        deletions = [self._deletion_of(one) for one in given_up]
        if unused:
            # Files of failed checkpoints go with the newest that is subsumed, or by themselves.
            last = deletions.pop() if deletions else Deletion(lowest - 1, "")
            deletions.append(replace(last, file_uris=unused))
        return deletions

    def end(
        self,
        status: JobStatus,
        retention: ExternalizedCheckpointRetention,
        *,
        keeps_latest: bool = False,
    ) -> list[Deletion]:
        """Return the deletions of the checkpoints that do not outlive a job with this last status."""
        if is_kept(status, retention):
            # All files stay: a checkpoint whose publication is in doubt may be complete.
            return []
        gone, self._checkpoints = self._checkpoints, []
        if keeps_latest and gone:
            self._checkpoints = [gone.pop()]
            unused = self.shared.unused_below(self._checkpoints[0].checkpoint_id)
        else:
            unused = self.shared.forget_all()
        deletions = [self._deletion_of(one) for one in gone]
        return [*deletions, Deletion(0, "", tuple(unused))]

    def _put(self, checkpoint: CompletedCheckpoint) -> None:
        latest = self.latest
        assert latest is None or latest.checkpoint_id < checkpoint.checkpoint_id, (
            "ids must increase"
        )
        self._checkpoints.append(checkpoint)
        self.shared.register(checkpoint.checkpoint_id, checkpoint.metadata.files())

    def _subsumed(self) -> list[CompletedCheckpoint]:
        newest = self._checkpoints[-1]
        newest_checkpoint = next(
            (one for one in reversed(self._checkpoints) if not one.metadata.kind.is_savepoint), None
        )
        given_up: list[CompletedCheckpoint] = []
        for one in self._checkpoints[:-1]:
            if len(self._checkpoints) - len(given_up) <= self._retained_count:
                break
            # Incremental checkpoints build on the newest one that is not a savepoint; none follow if the job stops.
            if one is newest_checkpoint and not newest.metadata.kind.is_synchronous:
                continue
            given_up.append(one)
        self._checkpoints = [one for one in self._checkpoints if one not in given_up]
        return given_up

    def _deletion_of(self, checkpoint: CompletedCheckpoint) -> Deletion:
        folder = "" if checkpoint.checkpoint_id in self._not_owned else checkpoint.uri
        shared = frozenset(file.uri for file in checkpoint.metadata.files() if file.is_shared)
        return Deletion(checkpoint.checkpoint_id, folder, shared_uris=shared)


def is_kept(status: JobStatus, retention: ExternalizedCheckpointRetention) -> bool:
    """Return whether checkpoints outlive a job with this last status.

    A suspended job continues elsewhere, and one that FAILED may continue once the cause is removed.
    """
    match status:
        case JobStatus.FINISHED:
            return False
        case JobStatus.CANCELED:
            return retention is ExternalizedCheckpointRetention.RETAIN_ON_CANCELLATION
        case _:
            return True
