"""Errors of checkpoints (storage that fails, snapshots that cannot be used, late publications) and of live reads.

CheckpointError
+- CheckpointStorageError      an operation on the storage failed
|  +- PublicationUnknownError  the same while a snapshot was published: it may be complete or not
|  +- SnapshotSubsumedError    the snapshot was deleted
+- CheckpointCorruptedError    a stored file differs from the written one
+- CheckpointExistsError       another driver has published, or given up, this checkpoint
+- CheckpointFencedError       a later driver has taken over
+- SnapshotLeasedError         the snapshot is not deleted, because it is being read
+- RecordNotTrustedError       a note or the record of a lineage was not sealed with this key
+- MetadataError               the metadata of a snapshot cannot be used
|  +- MetadataMissingError
|  +- MetadataTruncatedError
|  +- MetadataVersionError
|  +- MetadataAuthenticationError
|  +- SnapshotDrainedError     a savepoint of a drained job, from which no job can continue
+- UnclaimedStateError         a snapshot has state of operators that the job does not have
+- MaxParallelismError         keyed state was written for another number of key groups
+- FinishedOperatorsError      operators that had finished are chained to others that are new or had not

StateReadError                 the state of a running subtask cannot be read
+- SubtaskNotReadableError     the subtask does not run, or has ended
+- gateways.errors: StateReadTimeoutError  the subtask has not answered in time
+- StateReadsBusyError         too many other requests read the state of this subtask
+- StateKeyMismatchError       the requested keys do not have the state's key type, or are too many
+- StateNotShowableError       values of the state cannot be put into columns

CheckpointFailureReason lists the reasons of failed checkpoints, and whether each counts against the tolerable failures.
Source: Flink CheckpointFailureReason, CheckpointFailureManager.
"""

import enum
import errno
from collections.abc import Sequence
from typing import Final

from headrace.core.errors import ErrorDomain, HeadraceError

_REMEDIES: Final = {
    errno.ENOSPC: "free space there, or set execution.checkpointing.dir to another place",
    errno.EDQUOT: "raise the quota, or set execution.checkpointing.dir to another place",
    errno.EACCES: "allow the user who runs driver and workers to read and write there",
    errno.EPERM: "allow the user who runs driver and workers to read and write there",
    errno.EROFS: "set execution.checkpointing.dir to a writable place",
    errno.ENOENT: "check whether it was deleted or moved, and whether every host sees the same folder",
    errno.ENOTDIR: "name a folder, or a path where one can be created",
}
MAKE_FOLDER: Final = "make the folder"
PUBLISH: Final = "publish"
_MAKING: Final = (MAKE_FOLDER, PUBLISH)
"""Operations that make missing folders themselves: a missing folder cannot be the reason for their failure."""
_NOT_MADE: Final = (
    "a folder of this path cannot be made: set execution.checkpointing.dir, or name a folder for the savepoint, where "
    "driver and workers can write"
)
NEVER_COMPLETED: Final = "it was never completed, is still being written, or was deleted"
"""Explanation of a snapshot without metadata."""
_FROM_COPY: Final = (
    "restore the file from a copy, or start from another checkpoint: if it is older than output that sinks have "
    "committed, the start is refused until you allow output to be written twice with "
    "headrace.state-recovery.repeat-output=true"
)
_REMEDY: Final = "check that the storage is up and reachable from every host"


class CheckpointError(HeadraceError):
    """Base of the errors of stored snapshots."""

    domain, recoverable = ErrorDomain.EXTERNAL, True


class CheckpointStorageError(CheckpointError):
    """Raised if an operation on the checkpoint storage failed.

    `operation` is a verb: write, read, list, delete, publish.
    """

    def __init__(self, operation: str, uri: str, reason: str, remedy: str = _REMEDY) -> None:
        super().__init__(f"checkpoint storage: cannot {operation} {uri}: {reason}; {remedy}")
        self.operation = operation
        self.uri = uri

    @classmethod
    def of(cls, operation: str, uri: str, error: Exception) -> "CheckpointStorageError":
        """Make the error from a file system's own exception."""
        number = getattr(error, "errno", None)
        if number is None and isinstance(error, FileNotFoundError):
            number = errno.ENOENT
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        remedy = _REMEDIES.get(number or 0, _REMEDY)
        if number == errno.ENOENT and operation in _MAKING:
            remedy = _NOT_MADE
        return cls(operation, uri, " ".join(reason.split()), remedy)


class PublicationUnknownError(CheckpointStorageError):
    """Raised if the storage failed while a snapshot was being published: it may be complete or not. Keep its files."""

    def __init__(self, uri: str, reason: str) -> None:
        remedy = "its files are kept, and the next start of the job finds out"
        super().__init__("find out whether it published", uri, reason, remedy)


class CheckpointCorruptedError(CheckpointError):
    """Raised if a stored file differs from the file that was written: nothing of it was used."""

    recoverable = False

    def __init__(self, uri: str, what: str) -> None:
        super().__init__(
            f"{uri or 'state within the metadata'} is damaged: {what}; restore the file from a copy. You can also "
            "start from an older checkpoint (`headrace checkpoint list` shows them), but output that sinks have "
            "committed since then would be written twice, so such a start is refused until you allow it with "
            "headrace.state-recovery.repeat-output=true"
        )
        self.uri = uri


class SnapshotSubsumedError(CheckpointStorageError):
    """Raised if a snapshot was deleted, because newer ones subsumed it, or a user disposed of it.

    `oldest_id`: the oldest id of the checkpoints that still exist, or None. `missing_uri`: the file that was not found.
    """

    recoverable = False

    def __init__(self, uri: str, missing_uri: str, oldest_id: int | None) -> None:
        remedy = (
            "name another snapshot"
            if oldest_id is None
            else f"the oldest one left is {oldest_id}: read that or a later one, or take a savepoint"
        )
        super().__init__(
            "read",
            missing_uri or uri,
            f"the snapshot {uri} does not exist any more: newer checkpoints have replaced it, or it was deleted",
            remedy,
        )
        self.snapshot_uri = uri
        self.oldest_id = oldest_id


class SnapshotLeasedError(CheckpointError):
    """Raised if a snapshot is not deleted because it is being read. `expires_ms`: end of the last lease, epoch ms."""

    domain, recoverable = ErrorDomain.USER, True

    def __init__(self, uri: str, holder: str, expires_ms: int, left_ms: int) -> None:
        super().__init__(
            f"{uri} is being read by {holder}, whose lease ends in {left_ms / 1000:.0f} s unless renewed: try again "
            "later, or end that query"
        )
        self.uri = uri
        self.holder = holder
        self.expires_ms = expires_ms


class RecordNotTrustedError(CheckpointError):
    """Raised if a record was not written with this key, or was changed since: nothing of it was used."""

    recoverable = False

    def __init__(self, place: str, reason: str) -> None:
        super().__init__(
            f"{place} cannot be trusted: {reason}. Its author could make Headrace delete or move files; check who "
            "has write access to that folder"
        )
        self.place = place
        self.reason = reason


class MetadataError(CheckpointError):
    """Raised if the metadata of a snapshot cannot be used."""

    recoverable = False


class MetadataMissingError(MetadataError):
    """Raised if there is no snapshot at this place."""

    domain = ErrorDomain.USER

    def __init__(self, uri: str, nearby: tuple[str, ...] = ()) -> None:
        hint = f"; there are {', '.join(nearby)}" if nearby else ""
        super().__init__(
            f"there is no completed checkpoint or savepoint at {uri}: {NEVER_COMPLETED}{hint}"
        )
        self.uri = uri


class MetadataTruncatedError(MetadataError):
    """Raised if the end of a metadata file is missing, or the file is not metadata."""

    def __init__(self, uri: str, what: str) -> None:
        super().__init__(f"the metadata {uri} is incomplete: {what}; {_FROM_COPY}")
        self.uri = uri


class MetadataVersionError(MetadataError):
    """Raised if a metadata file has a version that is not supported."""

    def __init__(self, uri: str, found: object, known: tuple[int, ...]) -> None:
        versions = ", ".join(map(str, known))
        super().__init__(
            f"the metadata {uri} has version {found!r}, but only {versions} are supported: "
            "use the version of Headrace that wrote it, or a newer one"
        )
        self.found = found


class MetadataAuthenticationError(MetadataError):
    """Raised if a metadata file was not written with this cluster's key, or was changed since."""

    def __init__(self, uri: str, reason: str, remedy: str = _FROM_COPY) -> None:
        super().__init__(f"the metadata {uri} cannot be trusted: {reason}; {remedy}")
        self.uri = uri


class SnapshotDrainedError(MetadataError):
    """Raised if a savepoint was taken after event time had ended: no job can continue from it."""

    domain = ErrorDomain.USER

    def __init__(self, uri: str) -> None:
        super().__init__(
            f"the savepoint {uri} was taken with --drain: its job has ended its input, and all windows and timers in "
            "event time have fired, so no job can continue from it: restore one that was taken without --drain"
        )
        self.uri = uri


class UnclaimedStateError(CheckpointError):
    """Raised if a snapshot has state of operators that the job does not have."""

    domain, recoverable = ErrorDomain.USER, False

    def __init__(self, checkpoint_id: int, unclaimed: Sequence[str], known: Sequence[str]) -> None:
        super().__init__(
            f"snapshot {checkpoint_id} has state of operators that this job does not have: {', '.join(unclaimed)}; "
            "give the operators their old uids, or drop that state with --allow-non-restored-state "
            f"(the job has {', '.join(known)})"
        )
        self.unclaimed = tuple(unclaimed)


class MaxParallelismError(CheckpointError):
    """Raised if keyed state was written for another number of key groups."""

    domain, recoverable = ErrorDomain.USER, False

    def __init__(
        self, operator: str, restored: int, parallelism: int, max_parallelism: int
    ) -> None:
        remedy = (
            f"it cannot run with parallelism {parallelism}: use at most {restored}"
            if parallelism > restored
            else f"it cannot have {max_parallelism}: set its max parallelism to {restored}, or leave it unset"
        )
        super().__init__(
            f"the state of operator {operator} is in {restored} key groups (its max parallelism), so {remedy}"
        )
        self.restored = restored


class FinishedOperatorsError(CheckpointError):
    """Raised if operators that had finished are chained to others that are new or had not finished."""

    domain, recoverable = ErrorDomain.USER, False

    def __init__(self, finished: Sequence[str], others: Sequence[str]) -> None:
        super().__init__(
            f"{', '.join(finished)} had finished in the snapshot and will emit nothing more, but {', '.join(others)} "
            "in the same task need their output: remove these from the program, or start without the snapshot"
        )


class CheckpointExistsError(CheckpointError):
    """Raised if another driver has published, or given up, this checkpoint: this driver must not publish it."""

    recoverable = False

    def __init__(self, uri: str) -> None:
        super().__init__(f"{uri} exists already: another driver has decided on this checkpoint")
        self.uri = uri


class CheckpointFencedError(CheckpointError):
    """Raised if a later driver of the same lineage has taken over; this driver must publish nothing any more.

    `newer_epoch` is 0 if the lineage's record was deleted, because its job has ended.
    """

    recoverable = False

    def __init__(self, lineage: str, own_epoch: int, newer_epoch: int) -> None:
        why = (
            f"a later one with epoch {newer_epoch} has taken over: its checkpoints count"
            if newer_epoch
            else "the lineage's record was deleted: a later driver has ended the job"
        )
        super().__init__(
            f"this driver has epoch {own_epoch} of lineage {lineage}, but {why}: this job must stop"
        )
        self.newer_epoch = newer_epoch


class StateReadError(HeadraceError):
    """Raised if the state of a running subtask cannot be read. The job itself is not affected."""

    domain, recoverable = ErrorDomain.EXTERNAL, True


class SubtaskNotReadableError(StateReadError):
    """Raised if the subtask does not run, or has ended: try again when it runs, or read the last checkpoint."""

    def __init__(self, subtask: str, reason: str) -> None:
        super().__init__(
            f"the state of {subtask} cannot be read, because {reason}: try again once the job is RUNNING, or read "
            "its last "
            "checkpoint"
        )
        self.subtask = subtask
        self.reason = reason


class StateReadsBusyError(StateReadError):
    """Raised if too many clients read the state of one subtask at the same time."""

    def __init__(self, read_count: int) -> None:
        super().__init__(
            f"{read_count} other requests read the state of this subtask: try again when they are done"
        )
        self.read_count = read_count


class StateKeyMismatchError(StateReadError):
    """Raised if rows cannot be found by the given keys, which must have the type of the column `key`."""

    domain, recoverable = ErrorDomain.USER, False

    def __init__(self, state: str, reason: str) -> None:
        super().__init__(f"rows of state '{state}' cannot be found by these keys: {reason}")
        self.state = state
        self.reason = reason


class StateNotShowableError(StateReadError):
    """Raised if a value does not fit its type, or cannot be pickled: no checkpoint could store it either."""

    domain, recoverable = ErrorDomain.USER, False

    def __init__(self, state: str, reason: str) -> None:
        super().__init__(f"state '{state}' holds values that cannot be shown: {reason}")
        self.state = state
        self.reason = reason


class CheckpointFailureReason(enum.Enum):
    """Reasons for which a checkpoint failed, by Flink's names; the values are texts for people."""

    PERIODIC_SCHEDULER_SHUTDOWN = "periodic checkpoints have been stopped"
    TOO_MANY_CHECKPOINT_REQUESTS = "too many checkpoints wait to be taken"
    MINIMUM_TIME_BETWEEN_CHECKPOINTS = "the minimum pause between checkpoints is not over"
    NOT_ALL_REQUIRED_TASKS_RUNNING = "not all required tasks are running"
    BLOCKING_OUTPUT_EXIST = "the job has blocking exchanges"
    IO_EXCEPTION = "the checkpoint storage cannot be written"
    CHECKPOINT_ASYNC_EXCEPTION = "writing a task's state failed"
    CHECKPOINT_DECLINED = "a task declined"
    CHECKPOINT_EXPIRED = "it was not completed in time"
    FINALIZE_CHECKPOINT_FAILURE = "its metadata could not be written"
    CHANNEL_STATE_SHARED_STREAM_EXCEPTION = "a file shared with another task failed"
    CHECKPOINT_SUBSUMED = "a later checkpoint was completed first"
    CHECKPOINT_DECLINED_TASK_NOT_READY = "a task was not ready"
    CHECKPOINT_DECLINED_TASK_CLOSING = "a task was ending"
    CHECKPOINT_DECLINED_SUBSUMED = "a later barrier came first"
    CHECKPOINT_DECLINED_ON_CANCELLATION_BARRIER = "an upstream task aborted it"
    CHECKPOINT_DECLINED_INPUT_END_OF_STREAM = "an input of a task ended"
    CHECKPOINT_COORDINATOR_SHUTDOWN = "the job has ended"
    CHECKPOINT_COORDINATOR_SUSPEND = "the job is no longer running"
    JOB_FAILOVER_REGION = "a region of the job restarts"
    TASK_FAILURE = "a task failed"
    TRIGGER_CHECKPOINT_FAILURE = "it could not be triggered"

    @property
    def is_counted(self) -> bool:
        """Return whether it counts towards `execution.checkpointing.tolerable-failed-checkpoints`."""
        return self in _COUNTED

    @property
    def is_told(self) -> bool:
        """Return whether the user is told about a failure for this reason, because the user may have to act."""
        return self.is_counted or self is CheckpointFailureReason.TRIGGER_CHECKPOINT_FAILURE


_COUNTED = frozenset(
    {
        CheckpointFailureReason.IO_EXCEPTION,
        CheckpointFailureReason.CHECKPOINT_ASYNC_EXCEPTION,
        CheckpointFailureReason.CHECKPOINT_DECLINED,
        CheckpointFailureReason.CHECKPOINT_EXPIRED,
        CheckpointFailureReason.FINALIZE_CHECKPOINT_FAILURE,
    }
)
