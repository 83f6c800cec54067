"""Errors with which endpoints answer, known to both sides so that they arrive with their class.

HeadraceError
+- DuplicateJobSubmissionError    the Dispatcher has a job of this id
+- ClusterShutDownError           the cluster accepts no more jobs
+- NotLeadingError                this process does not lead its cluster now
+- UnknownJobError                the Dispatcher has no job of this id
+- JobAlreadyEndedError           the job has ended in another way and cannot be cancelled
+- NothingCollectedError          the operator is not a collect sink of the job
+- UnknownOperatorError           the job has no operator of this uid, id or name, or several
+- TaskSubmissionError            a TaskManager refuses a task
+- TaskBuildError                 a TaskManager accepted a task but could not build it
+- SlotOccupiedError              a TaskManager cannot provide the slot
+- StaleLeaderError               a request came from a leader that the TaskManager does not follow
+- UnknownAttemptError            the JobMaster does not know the attempt, or not any more
+- UnknownTaskManagerError        the ResourceManager does not know the TaskManager, or not any more
+- StackSamplerBusyError          a TaskManager already samples the maximum number of vertices
+- CoordinatorBusyError           an operator's coordinator cannot accept an event now
+- CheckpointFailedError          a requested checkpoint or savepoint has failed
+- BlobError                      a large payload could not be transferred or stored
|  +- BlobNotFoundError           the blob server does not have the blob, or not any more
|  +- BlobCorruptedError          the content does not match the hash in the key
|  +- BlobStorageError            a file of a blob cannot be written or read, mostly because of a full disk
|  +- UnfitArchiveError           an archive of a job cannot be unpacked on any host
|  +- BlobTransferError           a blob could not be uploaded or fetched after all retries
+- checkpoint.errors: StateReadError  base class, with the errors that tasks raise
   +- StateReadTimeoutError       the subtask has not answered in time
"""

from headrace.checkpoint.errors import StateReadError
from headrace.core.errors import ErrorDomain, HeadraceError


class DuplicateJobSubmissionError(HeadraceError):
    """Raised if a job of this id runs, or has run, on the cluster."""

    domain, recoverable = ErrorDomain.USER, False

    def __init__(self, job_id: str, status: str) -> None:
        super().__init__(f"job {job_id} was submitted before and is {status}")
        self.job_id = job_id
        self.status = status


class ClusterShutDownError(HeadraceError):
    """Raised if a client has ended the cluster, which accepts no more jobs."""

    domain, recoverable = ErrorDomain.USER, False

    def __init__(self) -> None:
        super().__init__(
            "a client has ended this cluster: start the program again to get a new one"
        )


class NotLeadingError(HeadraceError):
    """Raised if this process does not lead its cluster now: ask the leader, or try again a little later."""

    domain, recoverable = ErrorDomain.EXTERNAL, True

    def __init__(self, reason: str) -> None:
        super().__init__(f"this process does not lead the cluster now: {reason}")
        self.reason = reason


class UnknownJobError(HeadraceError):
    """Raised if the cluster knows no job of this id: it never ran there, or was forgotten."""

    domain, recoverable = ErrorDomain.USER, False

    def __init__(self, job_id: str) -> None:
        super().__init__(f"there is no job {job_id} on this cluster")
        self.job_id = job_id


class TaskSubmissionError(HeadraceError):
    """Raised if a TaskManager refuses a task: its slot is gone, or the sender does not lead the job."""

    is_consequence = True


class TaskBuildError(HeadraceError):
    """Raised if a TaskManager accepted a task but could not build it from its description."""


class SlotOccupiedError(HeadraceError):
    """Raised if the slot belongs to another allocation, or does not exist: the ResourceManager must check again."""


class StaleLeaderError(HeadraceError):
    """Raised if a request came from a leader that this TaskManager does not follow."""


class UnknownAttemptError(HeadraceError):
    """Raised if the JobMaster knows no such attempt, or it has ended there: the task must stop."""

    recoverable, is_consequence = False, True

    def __init__(self, attempt_id: str) -> None:
        super().__init__(f"the JobMaster does not run attempt {attempt_id} (any more)")
        self.attempt_id = attempt_id


class UnknownTaskManagerError(HeadraceError):
    """Raised if no TaskManager of this id is registered or, for requests about ended ones, remembered."""

    domain, recoverable = ErrorDomain.USER, False

    def __init__(self, resource_id: str) -> None:
        super().__init__(f"there is no TaskManager {resource_id} on this cluster")
        self.resource_id = resource_id


class StackSamplerBusyError(HeadraceError):
    """Raised if a TaskManager already samples several vertices: try again when it has finished."""

    def __init__(self, resource_id: str, sampling_count: int) -> None:
        super().__init__(
            f"TaskManager {resource_id} already takes stack samples for {sampling_count} other requests: try again "
            "later"
        )
        self.resource_id = resource_id
        self.sampling_count = sampling_count


class CoordinatorBusyError(HeadraceError):
    """Raised if the coordinator cannot accept an event now: send the same one again a little later."""


class JobAlreadyEndedError(HeadraceError):
    """Raised if a job that has ended in another way is to be cancelled. `reason`: the cause of its end, one line."""

    domain, recoverable = ErrorDomain.USER, False

    def __init__(self, job_id: str, status: str, reason: str = "") -> None:
        ended = f"job {job_id} has ended before as {status}"
        super().__init__(f"{ended}: {reason}" if reason else ended)
        self.job_id = job_id
        self.status = status


class NothingCollectedError(HeadraceError):
    """Raised if the operator is not a collect sink of the job, or its rows were forgotten."""

    domain, recoverable = ErrorDomain.USER, False

    def __init__(self, job_id: str, operator_id: str) -> None:
        super().__init__(f"operator {operator_id} of job {job_id} collects no records")
        self.job_id = job_id
        self.operator_id = operator_id


class UnknownOperatorError(HeadraceError):
    """Raised if a job has no operator of this uid, id or name, or several of this name.

    `known`: the operators of the job.
    """

    domain, recoverable = ErrorDomain.USER, False

    def __init__(self, operator: str, known: str, said: str = "no operator") -> None:
        super().__init__(f"the job has {said} '{operator}': its operators are {known or 'none'}")
        self.operator = operator
        self.known = known


class CheckpointFailedError(HeadraceError):
    """Raised if a checkpoint or savepoint failed, for the reason in the text.

    `repeats`: the reason is on a disk or in the program, so a restart would not help.
    """

    domain, recoverable = ErrorDomain.EXTERNAL, True

    def __init__(self, text: str, *, repeats: bool = True) -> None:
        super().__init__(text)
        self.repeats = repeats


class BlobError(HeadraceError):
    """Raised if a large payload could not be transferred or stored."""

    domain, recoverable = ErrorDomain.EXTERNAL, True


class BlobNotFoundError(BlobError):
    """Raised if the blob server has no such blob: the job has ended there, or the blob was never uploaded."""

    def __init__(self, job_id: str, key: str, reason: str) -> None:
        super().__init__(f"there is no blob {key} of job {job_id}: {reason}")
        self.job_id = job_id
        self.key = key


class BlobCorruptedError(BlobError):
    """Raised if the content of a blob does not match its hash: the transfer must be repeated."""

    def __init__(self, job_id: str, key: str) -> None:
        super().__init__(f"the content of blob {key} of job {job_id} does not match its hash")
        self.job_id = job_id
        self.key = key


class BlobStorageError(BlobError):
    """Raised if a file of a blob cannot be written or read; the text has the place and the reason."""


class UnfitArchiveError(BlobError):
    """Raised if an archive of a job cannot be unpacked on any host: the job needs another archive."""

    domain, recoverable = ErrorDomain.USER, False

    def __init__(self, archive: str, reason: str, next_step: str) -> None:
        super().__init__(
            f"the archive '{archive}' of the job cannot be unpacked: {reason}; {next_step}"
        )
        self.archive = archive


class BlobTransferError(BlobError):
    """Raised if a blob could not be transferred after all retries."""


class StateReadTimeoutError(StateReadError):
    """Raised if the subtask has not answered in time, because a batch or user code keeps it busy."""

    def __init__(self, subtask: str, waited_ms: int) -> None:
        super().__init__(
            f"{subtask} has not answered within {waited_ms} ms, because it reads its state only between two batches: "
            "try again with a longer time limit, or check what its user code waits for"
        )
        self.subtask = subtask
        self.waited_ms = waited_ms
