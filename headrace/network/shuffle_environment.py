"""ShuffleEnvironment: what a shuffle service does on each TaskManager, whichever service it is.

The JobManager's half is the ShuffleMaster (`cluster/shuffle_master`). A service may keep results elsewhere
than on TaskManagers; what it does not want to do itself it leaves to the built-in environment.
Source: Flink ShuffleEnvironment.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from headrace.core.clock import Clock
from headrace.core.config import Settings
from headrace.core.ids import ExecutionAttemptId, ResourceId, ResultPartitionId
from headrace.core.randomness import SeededRandom
from headrace.core.security.tls import TlsIdentity
from headrace.core.shuffle_descriptors import (
    InputGateDescriptor,
    ResultPartitionDescriptor,
    TaskManagerLocation,
)
from headrace.metrics.groups import MetricGroup
from headrace.network.gates.single_input_gate import SingleInputGate
from headrace.network.ingest.server import IngestServer
from headrace.network.partitions.partition_manager import ResultPartitionManager
from headrace.network.partitions.result_partition import ResultPartition


@dataclass(frozen=True)
class ShuffleEnvironmentContext:
    """Dependencies that a TaskManager gives its shuffle environment. Source: Flink ShuffleEnvironmentContext."""

    resource_id: ResourceId
    settings: Settings
    secret: bytes = field(repr=False)
    bind_host: str
    advertised_host: str
    clock: Clock
    random: SeededRandom
    socket_directory: Path | None
    tls: TlsIdentity | None
    metrics: MetricGroup | None
    on_fatal_error: Callable[[BaseException], None] | None = None
    """Ends the TaskManager, from any thread: for an error after which it cannot be said whose data comes no more."""


class ShuffleEnvironment(Protocol):
    """One per TaskManager. Its methods may be called by any thread."""

    @property
    def partitions(self) -> ResultPartitionManager:
        """The partitions that occupy this TaskManager: those that somebody else stores are not among them."""
        ...

    @property
    def ingest(self) -> IngestServer:
        """The door for pushed DataFrames, at the location that `start` returned."""
        ...

    def start(self) -> TaskManagerLocation:
        """Begin to accept connections; return where others find this TaskManager. PortInUseError."""
        ...

    def create_result_partition(self, descriptor: ResultPartitionDescriptor) -> ResultPartition:
        """Make a partition to be written to; its consumers may connect from now on. NetworkError."""
        ...

    def create_input_gate(
        self, descriptor: InputGateDescriptor, consumer: ExecutionAttemptId
    ) -> SingleInputGate:
        """Reserve memory for the channels of a gate; nothing is requested yet. NetworkError."""
        ...

    def release_partitions(self, partition_ids: Sequence[ResultPartitionId]) -> None:
        """Drop what occupies this TaskManager of these partitions; unknown ones are passed over."""
        ...

    def close(self) -> None:
        """Release connections, partitions, memory, files and threads. Idempotent."""
        ...
