"""JobGraphPointers: which jobs a cluster has taken, kept where its leader is elected; the bytes lie in the storage."""

from typing import Protocol

from headrace.core.ids import JobId


class JobGraphPointers(Protocol):
    """One pointer per job, which is opaque here. All calls block; `epoch` is the caller's term as the leader.

    CheckpointStorageError; LeadershipLostError where a later leader may have read them already.
    """

    def put(self, epoch: int, job_id: JobId, pointer: bytes) -> None:
        """Store the pointer of a job, in place of an earlier one. It is durable when this returns."""
        ...

    def read_all(self, epoch: int) -> dict[str, bytes]:
        """Return all pointers, by the hex digits of their jobs as somebody has written them there."""
        ...

    def remove(self, epoch: int, job_id: JobId) -> None:
        """Forget the pointer of a job, if it is there."""
        ...
