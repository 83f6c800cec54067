"""Errors of checkpoints (storage that fails, snapshots that cannot be used, late publications) and of live reads.

CheckpointError
+- CheckpointStorageError      an operation on the storage failed
|  +- PublicationUnknownError  while a snapshot was published: it may be complete or not
|  +- SnapshotSubsumedError    the snapshot is not there any more
+- CheckpointCorruptedError    a stored file is not what was written
+- CheckpointExistsError       somebody else has published, or given up, this very checkpoint
+- CheckpointFencedError       a later driver has taken over
+- SnapshotLeasedError         it is not deleted, because somebody reads it
+- RecordNotTrustedError       a note or the record of a lineage was not sealed with this key
+- MetadataError               the metadata of a snapshot cannot be used
|  +- MetadataMissingError
|  +- MetadataTruncatedError
|  +- MetadataVersionError
|  +- MetadataAuthenticationError
|  +- SnapshotDrainedError     a savepoint of a job that was drained: nothing goes on from it
+- UnclaimedStateError         a snapshot has state of operators that the job does not have
+- MaxParallelismError         keyed state was written for another number of key groups
+- FinishedOperatorsError      operators that had finished are chained to others that are new or had not

StateReadError                 the state of a running subtask cannot be read
+- SubtaskNotReadableError     the subtask does not run, or not any more
+- gateways.errors: StateReadTimeoutError  it has not come to it in time
+- StateReadsBusyError         too many others read there
+- StateKeyMismatchError       the keys that are asked for are not of the state's type, or too many
+- StateNotShowableError       what it holds cannot be put into columns

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
    errno.EROFS: "set execution.checkpointing.dir to a place that can be written",
    errno.ENOENT: "see whether it was deleted or moved, and whether every host sees the same folder",
    errno.ENOTDIR: "name a folder, or a path where one can be made",
}
_MAKING: Final = ("make the folder", "publish")
"""Operations that make missing folders themselves: a missing folder cannot be the reason of their failure."""
_NOT_MADE: Final = (
    "a folder of this path cannot be made: set execution.checkpointing.dir, or name a folder for the savepoint, where "
    "driver and workers can write"
)
NEVER_COMPLETED: Final = "it was never completed, is still being written, or was deleted"
"""Explanation of a snapshot without metadata."""
_FROM_COPY: Final = (
    "put the file back from a copy, or restore another checkpoint: if it is older than what sinks have committed, the "
    "start is refused until you allow output to be written twice"
)
_REMEDY: Final = "see whether the storage is up and reachable from every host"


class CheckpointError(HeadraceError):
    """Base of the errors of stored snapshots."""

    domain, recoverable = ErrorDomain.EXTERNAL, True


class CheckpointStorageError(CheckpointError):
    """An operation on the checkpoint storage failed. `operation` is a verb: write, read, list, delete, publish."""

    def __init__(self, operation: str, uri: str, reason: str, remedy: str = _REMEDY) -> None:
        super().__init__(f"checkpoint storage: cannot {operation} {uri}: {reason}; {remedy}")
        self.operation = operation
        self.uri = uri

    @classmethod
    def of(cls, operation: str, uri: str, error: Exception) -> "CheckpointStorageError":
        """Translate a file system's own exception."""
        number = getattr(error, "errno", None)
        if number is None and isinstance(error, FileNotFoundError):
            number = errno.ENOENT
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        remedy = _REMEDIES.get(number or 0, _REMEDY)
        if number == errno.ENOENT and operation in _MAKING:
            remedy = _NOT_MADE
        return cls(operation, uri, " ".join(reason.split()), remedy)


class PublicationUnknownError(CheckpointStorageError):
    """The storage failed while a snapshot was being published: it may be complete or not. Keep its files."""

    def __init__(self, uri: str, reason: str) -> None:
        remedy = "its files stay, and the next start of the job finds out"
        super().__init__("say whether it published", uri, reason, remedy)


class CheckpointCorruptedError(CheckpointError):
    """A stored file differs from the file that was written: nothing of it was used."""

    recoverable = False

    def __init__(self, uri: str, what: str) -> None:
        super().__init__(
            f"{uri or 'state within the metadata'} is damaged: {what}; put the file back from a copy. An older "
            "checkpoint (`headrace checkpoint list` shows those that are kept) can be restored too, but output that "
            "sinks have committed since then would be written twice, so that such a start is refused until you allow it"
        )
        self.uri = uri


class SnapshotSubsumedError(CheckpointStorageError):
    """A snapshot that existed was deleted: newer ones subsumed it, or somebody disposed of it.

    `oldest_id`: of the checkpoints that still exist, or None. `missing_uri`: the file that was not found.
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
            f"the snapshot {uri} is gone: newer checkpoints have replaced it, or it was deleted",
            remedy,
        )
        self.snapshot_uri = uri
        self.oldest_id = oldest_id


class SnapshotLeasedError(CheckpointError):
    """A snapshot is not deleted, because somebody reads it. `expires_ms`: when the last lease ends, epoch ms."""

    domain, recoverable = ErrorDomain.USER, True

    def __init__(self, uri: str, holder: str, expires_ms: int, left_ms: int) -> None:
        super().__init__(
            f"{uri} is being read by {holder}, whose lease ends in {left_ms / 1000:.0f} s unless it is renewed: "
            "try again later, or end that query"
        )
        self.uri = uri
        self.holder = holder
        self.expires_ms = expires_ms


class RecordNotTrustedError(CheckpointError):
    """A record was not written with this key, or was changed since: nothing of it was used."""

    recoverable = False

    def __init__(self, place: str, reason: str) -> None:
        super().__init__(
            f"{place} is not to be trusted: {reason}. Its author could have files deleted, or moved to other places; "
            "check who may write in that folder"
        )
        self.place = place
        self.reason = reason


class MetadataError(CheckpointError):
    """The metadata of a snapshot cannot be used."""

    recoverable = False


class MetadataMissingError(MetadataError):
    """No snapshot is at this place."""

    domain = ErrorDomain.USER

    def __init__(self, uri: str, nearby: tuple[str, ...] = ()) -> None:
        hint = f"; there are {', '.join(nearby)}" if nearby else ""
        super().__init__(
            f"there is no completed checkpoint or savepoint at {uri}: {NEVER_COMPLETED}{hint}"
        )
        self.uri = uri


class MetadataTruncatedError(MetadataError):
    """The end of a metadata file is missing, or the file is no metadata."""

    def __init__(self, uri: str, what: str) -> None:
        super().__init__(f"the metadata {uri} is not whole: {what}; {_FROM_COPY}")
        self.uri = uri


class MetadataVersionError(MetadataError):
    """A metadata file was written by a version that this one does not know."""

    def __init__(self, uri: str, found: object, known: tuple[int, ...]) -> None:
        versions = ", ".join(map(str, known))
        super().__init__(
            f"the metadata {uri} has version {found!r}, and known are {versions}: "
            "use the version of Headrace that wrote it, or a newer one"
        )
        self.found = found


class MetadataAuthenticationError(MetadataError):
    """A metadata file was not written with this cluster's key, or was changed since."""

    def __init__(self, uri: str, reason: str, remedy: str = _FROM_COPY) -> None:
        super().__init__(f"the metadata {uri} is not to be trusted: {reason}; {remedy}")
        self.uri = uri


class SnapshotDrainedError(MetadataError):
    """A savepoint was taken when event time had ended: nothing can go on from it."""

    domain = ErrorDomain.USER

    def __init__(self, uri: str) -> None:
        super().__init__(
            f"the savepoint {uri} was taken with --drain: its job has ended its input, and all windows and timers have "
            "fired, so that no job can go on from it; restore one that was taken without --drain"
        )
        self.uri = uri


class UnclaimedStateError(CheckpointError):
    """A snapshot has state of operators that the job does not have."""

    domain, recoverable = ErrorDomain.USER, False

    def __init__(self, checkpoint_id: int, unclaimed: Sequence[str], known: Sequence[str]) -> None:
        super().__init__(
            f"snapshot {checkpoint_id} has state that no operator of this job claims: {', '.join(unclaimed)}; give the "
            "operators the uids they had, or leave that state behind with --allow-non-restored-state "
            f"(the job has {', '.join(known)})"
        )
        self.unclaimed = tuple(unclaimed)


class MaxParallelismError(CheckpointError):
    """Keyed state was written for another number of key groups."""

    domain, recoverable = ErrorDomain.USER, False

    def __init__(
        self, operator: str, restored: int, parallelism: int, max_parallelism: int
    ) -> None:
        remedy = (
            f"it cannot run with parallelism {parallelism}: take at most {restored}"
            if parallelism > restored
            else f"it cannot have {max_parallelism}: set its max parallelism to {restored}, or leave it unset"
        )
        super().__init__(
            f"the state of operator {operator} lies in {restored} key groups (its max parallelism), so {remedy}"
        )
        self.restored = restored


class FinishedOperatorsError(CheckpointError):
    """Operators that had finished are chained to others that are new or had not."""

    domain, recoverable = ErrorDomain.USER, False

    def __init__(self, finished: Sequence[str], others: Sequence[str]) -> None:
        super().__init__(
            f"{', '.join(finished)} had finished in the snapshot and will emit nothing more, but {', '.join(others)} "
            "in the same task need their output: remove these from the program, or start without the snapshot"
        )


class CheckpointExistsError(CheckpointError):
    """Another driver has published, or given up, this very checkpoint: this one must not publish it."""

    recoverable = False

    def __init__(self, uri: str) -> None:
        super().__init__(f"{uri} exists already: another driver has decided on this checkpoint")
        self.uri = uri


class CheckpointFencedError(CheckpointError):
    """A later driver of the same lineage has taken over; this one must not publish anything any more.

    `newer_epoch` is 0 if the lineage's record is gone, because its job has ended.
    """

    recoverable = False

    def __init__(self, lineage: str, own_epoch: int, newer_epoch: int) -> None:
        why = (
            f"a later one with epoch {newer_epoch} has taken over: its checkpoints count"
            if newer_epoch
            else "the lineage's record is gone: a later driver has ended the job"
        )
        super().__init__(
            f"this driver has epoch {own_epoch} of lineage {lineage}, and {why}; this job must stop"
        )
        self.newer_epoch = newer_epoch


class StateReadError(HeadraceError):
    """The state of a running subtask cannot be read. The job itself is not affected."""

    domain, recoverable = ErrorDomain.EXTERNAL, True


class SubtaskNotReadableError(StateReadError):
    """The subtask does not run, or has ended meanwhile: ask again when it runs, or read the last checkpoint."""

    def __init__(self, subtask: str, reason: str) -> None:
        super().__init__(
            f"the state of {subtask} cannot be read, as {reason}: ask again once the job is RUNNING, or read its last "
            "checkpoint"
        )
        self.subtask = subtask
        self.reason = reason


class StateReadsBusyError(StateReadError):
    """Too many read the state of one subtask at once."""

    def __init__(self, read_count: int) -> None:
        super().__init__(
            f"{read_count} others read the state of this subtask: ask again when they are done"
        )
        self.read_count = read_count


class StateKeyMismatchError(StateReadError):
    """Rows cannot be found by the given keys, which must have the type of the column `key`."""

    domain, recoverable = ErrorDomain.USER, False

    def __init__(self, state: str, reason: str) -> None:
        super().__init__(f"rows of state '{state}' cannot be found by these keys: {reason}")
        self.state = state
        self.reason = reason


class StateNotShowableError(StateReadError):
    """A value is not what its type says, or cannot be pickled: no checkpoint could store it either."""

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
        """Whether it counts towards `execution.checkpointing.tolerable-failed-checkpoints`."""
        return self in _COUNTED

    @property
    def is_told(self) -> bool:
        """Whether the user is told of a checkpoint that failed for this reason, as the user may have to act."""
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
