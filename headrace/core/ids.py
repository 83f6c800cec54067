"""Identifiers: 16 random bytes, or compounds of them; compared by value, ordered, and small on the wire.

Random ids are drawn from an injected generator, so that a seed reproduces them. A BlobKey names a large payload that is
sent by reference, and is computed from its content. Source: Flink AbstractID, BlobKey.
"""

import hashlib
from typing import ClassVar, Final, Self

import msgspec

from headrace.core.randomness import SeededRandom

ID_PATTERN: Final = "[0-9a-fA-F]{32}"
"""Regular expression of an id's text form."""
ID_TEXT_FORM: Final = "32 hexadecimal digits"
"""An id's text form in messages to people."""


class UniqueId(msgspec.Struct, frozen=True, order=True, array_like=True):
    """Sixteen bytes. Text form: 32 hexadecimal digits."""

    value: bytes

    SIZE: ClassVar[int] = 16

    def __post_init__(self) -> None:
        if len(self.value) != self.SIZE:
            raise ValueError(
                f"{type(self).__name__} needs {self.SIZE} bytes, got {len(self.value)}"
            )

    @classmethod
    def generate(cls, random: SeededRandom) -> Self:
        """Draw a new id from `random`."""
        return cls(random.randbytes(cls.SIZE))

    @classmethod
    def from_hex(cls, text: str) -> Self:
        """Parse the text form; ValueError otherwise."""
        return cls(bytes.fromhex(text))

    def hex(self) -> str:
        """Return the text form, in lower case."""
        return self.value.hex()

    def __str__(self) -> str:
        return self.value.hex()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.value.hex()})"


class JobId(UniqueId, frozen=True, order=True, array_like=True):
    """Id of one submitted job."""


class JobVertexId(UniqueId, frozen=True, order=True, array_like=True):
    """Id of one vertex of a JobGraph (a chain of operators): the id of its head operator."""


class OperatorId(UniqueId, frozen=True, order=True, array_like=True):
    """Id of one operator, stable across restarts and independent of chaining."""


class IntermediateDataSetId(UniqueId, frozen=True, order=True, array_like=True):
    """Id of the output of a job vertex along one edge."""


class AllocationId(UniqueId, frozen=True, order=True, array_like=True):
    """Id of one allocation of a slot to a job."""


class InstanceId(UniqueId, frozen=True, order=True, array_like=True):
    """Id of one registration of a TaskManager at the ResourceManager."""


class FencingToken(UniqueId, frozen=True, order=True, array_like=True):
    """Id of one leader's session: a message with another token is refused."""


class DispatcherId(FencingToken, frozen=True, order=True, array_like=True):
    """Leader session of a Dispatcher."""


class ResourceManagerId(FencingToken, frozen=True, order=True, array_like=True):
    """Leader session of a ResourceManager."""


class JobMasterId(FencingToken, frozen=True, order=True, array_like=True):
    """Leader session of a JobMaster."""


class ResourceId(msgspec.Struct, frozen=True, order=True, array_like=True):
    """Name of a process of the cluster: a TaskManager (`<application>-tm-<n>`) or the driver."""

    name: str

    def __str__(self) -> str:
        return self.name


class SlotId(msgspec.Struct, frozen=True, order=True, array_like=True):
    """Slot `slot_index` of a TaskManager; -1 asks the TaskManager to choose one."""

    resource_id: ResourceId
    slot_index: int


class ClusterDataSetId(msgspec.Struct, frozen=True, order=True, array_like=True):
    """Id of a data set that a job left in the cluster; a program names its edges equally in all its jobs."""

    job_id: JobId
    data_set_id: IntermediateDataSetId

    def __str__(self) -> str:
        return f"{self.data_set_id} of job {self.job_id}"


class ExecutionVertexId(msgspec.Struct, frozen=True, order=True, array_like=True):
    """Id of a subtask, vertex and index, independent of its attempts."""

    vertex_id: JobVertexId
    subtask_index: int

    def __str__(self) -> str:
        return f"{self.vertex_id}_{self.subtask_index}"


class ExecutionAttemptId(msgspec.Struct, frozen=True, order=True, array_like=True):
    """Id of one attempt to run a subtask of one job, carried by every RPC, frame and state file of a task."""

    job_id: JobId
    execution_vertex_id: ExecutionVertexId
    attempt_number: int

    @property
    def subtask_index(self) -> int:
        """Index of the subtask within its vertex, from 0."""
        return self.execution_vertex_id.subtask_index

    def __str__(self) -> str:
        return f"{self.job_id.hex()[:8]}_{self.execution_vertex_id}_{self.attempt_number}"


class ResultPartitionId(msgspec.Struct, frozen=True, order=True, array_like=True):
    """Id of the result partition that one attempt of a producer writes along one edge."""

    data_set_id: IntermediateDataSetId
    partition_number: int
    producer: ExecutionAttemptId

    def __str__(self) -> str:
        return f"{self.data_set_id}#{self.partition_number}@{self.producer}"


class BlobKey(msgspec.Struct, frozen=True, order=True, array_like=True):
    """SHA-256 of the content, and its length in bytes: equal content has equal keys."""

    digest: bytes
    size_bytes: int

    DIGEST_SIZE: ClassVar[int] = 32

    def __post_init__(self) -> None:
        # A key names a file: a sender must not be able to name any other file.
        if len(self.digest) != self.DIGEST_SIZE or self.size_bytes < 0:
            raise ValueError(f"no blob key: {len(self.digest)} bytes of hash, {self.size_bytes}")

    @classmethod
    def of(cls, content: bytes | memoryview) -> Self:
        """Return the key of `content`."""
        view = memoryview(content)
        return cls(hashlib.sha256(view).digest(), view.nbytes)

    def __str__(self) -> str:
        return f"{self.digest.hex()[:16]} ({size_text(self.size_bytes)})"


def size_text(size_bytes: int) -> str:
    """Format `size_bytes` for people, in decimal units."""
    if size_bytes < 1_000_000:
        return f"{size_bytes / 1_000:.1f} kB"
    return f"{size_bytes / 1_000_000:.1f} MB"
