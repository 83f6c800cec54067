"""Where results are and how they are read: what the master tells producers and consumers about an edge.

Frozen messages, built by the JobMaster and read by the network stack. Source: Flink shuffle descriptors.
"""

import enum

import msgspec

from headrace.core.ids import IntermediateDataSetId, ResourceId, ResultPartitionId


class ResultPartitionType(enum.Enum):
    """How a result may be consumed. Only kinds that can be deployed are listed."""

    PIPELINED_BOUNDED = "PIPELINED_BOUNDED"


class TaskManagerLocation(msgspec.Struct, frozen=True):
    """How the data plane of a TaskManager is reached.

    `host_id` is equal for processes that can reach each other's Unix sockets (boot id, network namespace, user).
    """

    resource_id: ResourceId
    host: str
    data_port: int
    unix_socket_path: str | None
    host_id: str


class ResultPartitionDescriptor(msgspec.Struct, frozen=True):
    """One partition that a subtask is to produce."""

    partition_id: ResultPartitionId
    result_type: ResultPartitionType
    subpartition_count: int


class ShuffleDescriptor(msgspec.Struct, frozen=True):
    """A partition and the TaskManager that holds it."""

    partition_id: ResultPartitionId
    location: TaskManagerLocation


class InputChannelDescriptor(msgspec.Struct, frozen=True):
    """One subpartition that a gate reads."""

    shuffle: ShuffleDescriptor
    subpartition_index: int


class InputGateDescriptor(msgspec.Struct, frozen=True):
    """Everything one subtask reads along one edge. `input_number` is the operator input it feeds: 0 or 1."""

    data_set_id: IntermediateDataSetId
    input_number: int
    channels: tuple[InputChannelDescriptor, ...]
