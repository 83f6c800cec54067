"""Descriptors of results: they tell producers and consumers of an edge where a result is and how to read it.

Frozen messages, built by the JobMaster and read by the network stack. Source: Flink shuffle descriptors.
"""

import enum
from typing import Final

import msgspec

from headrace.core.ids import (
    ExecutionAttemptId,
    IntermediateDataSetId,
    ResourceId,
    ResultPartitionId,
)


class ResultPartitionType(enum.Enum):
    """Types of result partitions that can be deployed; `traits` describes how each may be consumed."""

    PIPELINED_BOUNDED = "PIPELINED_BOUNDED"
    PIPELINED_APPROXIMATE = "PIPELINED_APPROXIMATE"
    BLOCKING = "BLOCKING"
    BLOCKING_PERSISTENT = "BLOCKING_PERSISTENT"
    HYBRID_FULL = "HYBRID_FULL"
    HYBRID_SELECTIVE = "HYBRID_SELECTIVE"

    @property
    def traits(self) -> "ResultPartitionTraits":
        """Return the traits of this type."""
        return _TRAITS[self]


class ConsumingConstraint(enum.Enum):
    """Time at which consumers of a result may run. Source: Flink ResultPartitionType.ConsumingConstraint."""

    MUST_BE_PIPELINED = "while the producer runs"
    CAN_BE_PIPELINED = "while the producer runs, or later"
    BLOCKING = "after the producer has finished"


class ReleaseBy(enum.Enum):
    """Party that decides when a result is no longer needed. Source: Flink ResultPartitionType.ReleaseBy."""

    UPSTREAM = "the partition itself, once all consumers are done"
    SCHEDULER = "the JobMaster"


class ResultPartitionTraits(msgspec.Struct, frozen=True):
    """Traits of one type of result partition.

    `is_reconsumable`: a restarted consumer may read the result again; `is_persistent`: after its job has finished, the
    result belongs to the cluster until it is released.
    """

    consuming: ConsumingConstraint
    is_reconsumable: bool
    release_by: ReleaseBy
    is_persistent: bool = False

    @property
    def is_blocking(self) -> bool:
        """Return whether consumers wait for the end of the producer."""
        return self.consuming is ConsumingConstraint.BLOCKING

    @property
    def joins_regions(self) -> bool:
        """Return whether producer and consumers must run at the same time."""
        return self.consuming is ConsumingConstraint.MUST_BE_PIPELINED


_PIPELINED, _EITHER = ConsumingConstraint.MUST_BE_PIPELINED, ConsumingConstraint.CAN_BE_PIPELINED
_LATER = ConsumingConstraint.BLOCKING
_UPSTREAM, _SCHEDULER = ReleaseBy.UPSTREAM, ReleaseBy.SCHEDULER
# Source: Flink ResultPartitionType.    consumers, again, released by, persistent
_TRAITS: Final = {
    ResultPartitionType.PIPELINED_BOUNDED: ResultPartitionTraits(_PIPELINED, False, _UPSTREAM),
    ResultPartitionType.PIPELINED_APPROXIMATE: ResultPartitionTraits(_EITHER, False, _UPSTREAM),
    ResultPartitionType.BLOCKING: ResultPartitionTraits(_LATER, True, _SCHEDULER),
    ResultPartitionType.BLOCKING_PERSISTENT: ResultPartitionTraits(_LATER, True, _SCHEDULER, True),
    ResultPartitionType.HYBRID_FULL: ResultPartitionTraits(_EITHER, True, _SCHEDULER),
    ResultPartitionType.HYBRID_SELECTIVE: ResultPartitionTraits(_EITHER, False, _SCHEDULER),
}  # fmt: skip


class TaskManagerLocation(msgspec.Struct, frozen=True):
    """Addresses of a TaskManager's data plane.

    `host_id` is equal for processes that can reach each other's Unix sockets (boot id, network namespace, user).
    """

    resource_id: ResourceId
    host: str
    data_port: int
    unix_socket_path: str | None
    host_id: str


class PartitionDescriptor(msgspec.Struct, frozen=True):
    """A result of one subtask, as its registration describes it: the facts that do not depend on the attempt.

    `partition_count` is the number of subtasks that produce the data set. Source: Flink PartitionDescriptor.
    """

    data_set_id: IntermediateDataSetId
    partition_number: int
    partition_count: int
    result_type: ResultPartitionType
    subpartition_count: int
    is_broadcast: bool = False


class ProducerDescriptor(msgspec.Struct, frozen=True):
    """Attempt that will produce a partition, and its TaskManager. Source: Flink ProducerDescriptor."""

    attempt_id: ExecutionAttemptId
    location: TaskManagerLocation


class ShuffleDescriptor(msgspec.Struct, frozen=True):
    """A partition and the place from which it is read.

    An external partition is at `location`, not on a TaskManager: it survives the loss of its producer's TaskManager.
    Source: Flink ShuffleDescriptor.
    """

    partition_id: ResultPartitionId
    location: TaskManagerLocation
    is_external: bool = False

    @property
    def stored_by(self) -> ResourceId | None:
        """The TaskManager whose loss loses the partition; None if it is external."""
        return None if self.is_external else self.location.resource_id


class ResultPartitionDescriptor(msgspec.Struct, frozen=True):
    """One partition that a subtask produces.

    `shuffle` is the shuffle master's answer to its registration; None if no master was asked.
    """

    partition_id: ResultPartitionId
    result_type: ResultPartitionType
    subpartition_count: int
    shuffle: ShuffleDescriptor | None = None


class InputChannelDescriptor(msgspec.Struct, frozen=True):
    """One subpartition that a gate reads."""

    shuffle: ShuffleDescriptor
    subpartition_index: int


class InputGateDescriptor(msgspec.Struct, frozen=True):
    """Everything one subtask reads along one edge. `input_number` is the operator input it feeds: 0 or 1.

    Source: Flink InputGateDeploymentDescriptor.
    """

    data_set_id: IntermediateDataSetId
    input_number: int
    channels: tuple[InputChannelDescriptor, ...]
    result_type: ResultPartitionType = ResultPartitionType.PIPELINED_BOUNDED
