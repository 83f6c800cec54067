"""Errors that endpoints answer with, known to both sides so that they arrive with their class.

HeadraceError
+- DuplicateJobSubmissionError    the Dispatcher has a job of this id
+- ClusterShutDownError           it takes none any more
+- NotLeadingError                this process does not lead its cluster now
+- UnknownJobError                the Dispatcher has none
+- JobAlreadyEndedError           it has ended otherwise and cannot be cancelled
+- NothingCollectedError          the operator is no collect sink of the job
+- UnknownOperatorError           the job has none of this uid, id or name, or several
+- TaskSubmissionError            a TaskManager does not take a task
+- TaskBuildError                 it took the task and could not build it
+- SlotOccupiedError              a TaskManager does not give a slot
+- StaleLeaderError               a TaskManager is asked by somebody who does not lead any more
+- UnknownAttemptError            the JobMaster knows no such attempt (any more)
+- UnknownTaskManagerError        the ResourceManager knows no such TaskManager (any more)
+- StackSamplerBusyError          a TaskManager samples as many vertices as it may already
+- CoordinatorBusyError           an operator's coordinator is full for the moment
+- CheckpointFailedError          a checkpoint or savepoint that was asked for has failed
+- BlobError                      a big payload did not get to where it must be
|  +- BlobNotFoundError           the blob server does not have it (any more)
|  +- BlobCorruptedError          its content is not what its key says
|  +- BlobStorageError            its file cannot be written or read: most often a full disk
|  +- UnfitArchiveError           an archive that came with a job cannot be unpacked, here or anywhere
|  +- BlobTransferError           it could not be uploaded or fetched, after all retries
+- checkpoint.errors: StateReadError  there with what tasks raise of it
   +- StateReadTimeoutError       the subtask has not come to it in time
"""

from headrace.checkpoint.errors import StateReadError
from headrace.core.errors import ErrorDomain, HeadraceError


class DuplicateJobSubmissionError(HeadraceError):
    """A job of this id runs, or has run, on the cluster."""

    domain, recoverable = ErrorDomain.USER, False

    def __init__(self, job_id: str, status: str) -> None:
        super().__init__(f"job {job_id} was submitted before and is {status}")
        self.job_id = job_id
        self.status = status


class ClusterShutDownError(HeadraceError):
    """A client has ended the cluster: it takes no job any more."""

    domain, recoverable = ErrorDomain.USER, False

    def __init__(self) -> None:
        super().__init__("a client has ended this cluster: start the program again for another one")


class NotLeadingError(HeadraceError):
    """This process does not lead its cluster at the moment: ask who does, or this one a little later."""

    domain, recoverable = ErrorDomain.EXTERNAL, True

    def __init__(self, reason: str) -> None:
        super().__init__(f"this process answers for no jobs now: {reason}")
        self.reason = reason


class UnknownJobError(HeadraceError):
    """The cluster knows no job of this id: it never ran here, or was forgotten since."""

    domain, recoverable = ErrorDomain.USER, False

    def __init__(self, job_id: str) -> None:
        super().__init__(f"there is no job {job_id} on this cluster")
        self.job_id = job_id


class TaskSubmissionError(HeadraceError):
    """A TaskManager does not take a task: its slot is gone, or the sender does not lead the job."""

    is_consequence = True


class TaskBuildError(HeadraceError):
    """A TaskManager took a task and could not build it from its description."""


class SlotOccupiedError(HeadraceError):
    """The slot belongs to another allocation, or does not exist: the ResourceManager must look again."""


class StaleLeaderError(HeadraceError):
    """The request came from a leader that this TaskManager does not follow."""


class UnknownAttemptError(HeadraceError):
    """The JobMaster knows no such attempt, or it has ended there: the task must stop."""

    recoverable, is_consequence = False, True

    def __init__(self, attempt_id: str) -> None:
        super().__init__(f"the JobMaster does not run attempt {attempt_id} (any more)")
        self.attempt_id = attempt_id


class UnknownTaskManagerError(HeadraceError):
    """No TaskManager of this id is registered, nor remembered where those that ended would do."""

    domain, recoverable = ErrorDomain.USER, False

    def __init__(self, resource_id: str) -> None:
        super().__init__(f"there is no TaskManager {resource_id} on this cluster")
        self.resource_id = resource_id


class StackSamplerBusyError(HeadraceError):
    """A TaskManager samples the stacks of several vertices already: ask again when they are done."""

    def __init__(self, resource_id: str, sampling_count: int) -> None:
        super().__init__(
            f"TaskManager {resource_id} takes stack samples for {sampling_count} others already: ask again later"
        )
        self.resource_id = resource_id
        self.sampling_count = sampling_count


class CoordinatorBusyError(HeadraceError):
    """The coordinator cannot take an event now: send the same one again a little later."""


class JobAlreadyEndedError(HeadraceError):
    """A job that has ended otherwise cannot be cancelled. `reason`: the cause of its end, one line."""

    domain, recoverable = ErrorDomain.USER, False

    def __init__(self, job_id: str, status: str, reason: str = "") -> None:
        ended = f"job {job_id} has ended before as {status}"
        super().__init__(f"{ended}: {reason}" if reason else ended)
        self.job_id = job_id
        self.status = status


class NothingCollectedError(HeadraceError):
    """The operator is no collect sink of the job, or its rows were forgotten since."""

    domain, recoverable = ErrorDomain.USER, False

    def __init__(self, job_id: str, operator_id: str) -> None:
        super().__init__(f"operator {operator_id} of job {job_id} collects no records")
        self.job_id = job_id
        self.operator_id = operator_id


class UnknownOperatorError(HeadraceError):
    """A job has no operator of this uid, id or name, or several of this name. `known`: the operators of the job."""

    domain, recoverable = ErrorDomain.USER, False

    def __init__(self, operator: str, known: str, said: str = "no operator") -> None:
        super().__init__(f"the job has {said} '{operator}': there are {known or 'none'}")
        self.operator = operator
        self.known = known


class CheckpointFailedError(HeadraceError):
    """A checkpoint or savepoint failed, for the reason that the text gives.

    `repeats`: the reason is on a disk or in the program, so that a restart would not mend it.
    """

    domain, recoverable = ErrorDomain.EXTERNAL, True

    def __init__(self, text: str, *, repeats: bool = True) -> None:
        super().__init__(text)
        self.repeats = repeats


class BlobError(HeadraceError):
    """A big payload did not get to where it must be."""

    domain, recoverable = ErrorDomain.EXTERNAL, True


class BlobNotFoundError(BlobError):
    """The blob server has no such blob: the job is over there, or it was never uploaded."""

    def __init__(self, job_id: str, key: str, reason: str) -> None:
        super().__init__(f"there is no blob {key} of job {job_id}: {reason}")
        self.job_id = job_id
        self.key = key


class BlobCorruptedError(BlobError):
    """The content of a blob does not match its hash: the transfer has to be repeated."""

    def __init__(self, job_id: str, key: str) -> None:
        super().__init__(f"the content of blob {key} of job {job_id} does not match its hash")
        self.job_id = job_id
        self.key = key


class BlobStorageError(BlobError):
    """A file of a blob cannot be written or read; the text says where and why."""


class UnfitArchiveError(BlobError):
    """An archive that came with a job cannot be unpacked on any host: the job has to come with another one."""

    domain, recoverable = ErrorDomain.USER, False

    def __init__(self, archive: str, reason: str, next_step: str) -> None:
        super().__init__(f"'{archive}' of the job is not unpacked: {reason}; {next_step}")
        self.archive = archive


class BlobTransferError(BlobError):
    """A blob could not be transferred, whatever was tried."""


class StateReadTimeoutError(StateReadError):
    """The subtask has not come to it in time: a single batch, or user code, keeps it busy."""

    def __init__(self, subtask: str, waited_ms: int) -> None:
        super().__init__(
            f"{subtask} has not answered within {waited_ms} ms, as it reads its state between two batches only: ask "
            "again with more time, or look at what its user code waits for"
        )
        self.subtask = subtask
        self.waited_ms = waited_ms
