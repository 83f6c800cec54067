"""ShuffleEnvironment: the interface of a shuffle plug-in on each TaskManager.

The JobManager's half is the ShuffleMaster (`cluster/shuffle_master`). A plug-in may keep results elsewhere
than on TaskManagers; it delegates everything else to the built-in environment.
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
    """Dependencies that a TaskManager passes to its shuffle environment.

    Source: Flink ShuffleEnvironmentContext.
    """

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
    """Ends the TaskManager after an error that leaves lost data unaccounted for; None to do nothing. Any thread."""


class ShuffleEnvironment(Protocol):
    """Makes and holds the partitions and input gates of one TaskManager. Methods may be called on any thread."""

    @property
    def partitions(self) -> ResultPartitionManager:
        """Partitions stored on this TaskManager, without those stored elsewhere."""
        ...

    @property
    def ingest(self) -> IngestServer:
        """Server that accepts pushed DataFrames, at the location that `start` returned."""
        ...

    def start(self) -> TaskManagerLocation:
        """Start to accept connections; return the location of this TaskManager.

        PortInUseError if the port cannot be bound.
        """
        ...

    def create_result_partition(self, descriptor: ResultPartitionDescriptor) -> ResultPartition:
        """Make a partition for writing; its consumers may connect from now on. NetworkError if it cannot be made."""
        ...

    def create_input_gate(
        self, descriptor: InputGateDescriptor, consumer: ExecutionAttemptId
    ) -> SingleInputGate:
        """Make a gate and reserve memory for its channels, without requesting partitions.

        NetworkError if that fails.
        """
        ...

    def release_partitions(self, partition_ids: Sequence[ResultPartitionId]) -> None:
        """Drop the data of these partitions on this TaskManager; unknown ids are ignored."""
        ...

    def close(self) -> None:
        """Release connections, partitions, memory, files and threads. Idempotent."""
        ...
