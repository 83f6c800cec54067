"""InputGateFactory: from the description of an edge to a gate with its channels and their memory.

Source: Flink SingleInputGateFactory.
"""

from dataclasses import dataclass
from functools import partial

from headrace.core.config import Settings
from headrace.core.ids import ExecutionAttemptId, ResourceId
from headrace.core.shuffle_descriptors import InputChannelDescriptor, InputGateDescriptor
from headrace.network.gates.buffer_manager import BufferManager, CreditedChannel
from headrace.network.gates.gate import InputChannel
from headrace.network.gates.local_channel import LocalInputChannel
from headrace.network.gates.partition_requests import PartitionRequestBackoff
from headrace.network.gates.remote_channel import RemoteInputChannel
from headrace.network.gates.single_input_gate import SingleInputGate
from headrace.network.gates.unknown_channel import UnknownInputChannel
from headrace.network.memory.network_buffer_pool import NetworkBufferPool
from headrace.network.memory.sizing import (
    BUFFERS_PER_CHANNEL,
    FLOATING_BUFFERS_PER_GATE,
    PINNED_BUFFERS_PER_GATE,
    wanted_segment_size,
)
from headrace.network.partitions.partition_manager import ResultPartitionManager
from headrace.network.sessions.task_events import TaskEventDispatcher
from headrace.network.sessions.transport import Transport


@dataclass(frozen=True)
class InputGateFactory:
    """Makes the gates of one TaskManager."""

    resource_id: ResourceId
    settings: Settings
    buffer_pool: NetworkBufferPool
    partitions: ResultPartitionManager
    transport: Transport
    task_events: TaskEventDispatcher

    def create(
        self, descriptor: InputGateDescriptor, consumer: ExecutionAttemptId
    ) -> SingleInputGate:
        """Reserve memory for the channels of a gate; nothing is requested yet. InsufficientBuffersError."""
        remote_count = sum(not self._is_local(channel) for channel in descriptor.channels)
        receiver = self._create_receiver(consumer, remote_count) if remote_count else None
        remote: dict[int, CreditedChannel] = {}
        gate = SingleInputGate(receiver, partial(self._place_channel, receiver, remote))
        if receiver is not None:
            receiver.serve(remote)
        gate.serve(descriptor.channels)
        return gate

    def _place_channel(
        self,
        receiver: BufferManager | None,
        remote: dict[int, CreditedChannel],
        gate: SingleInputGate,
        index: int,
        channel: InputChannelDescriptor,
    ) -> InputChannel:
        """Make channel `index` of a gate: local, remote, or unknown as long as nobody knows which."""
        if channel.shuffle.location is None:
            return UnknownInputChannel()
        retry = PartitionRequestBackoff.from_settings(self.settings)
        notify = partial(gate.notify, index)
        if self._is_local(channel):
            return LocalInputChannel(
                channel,
                self.partitions,
                self.transport,
                self.task_events,
                retry,
                notify,
                gate.check_producer,
            )
        assert receiver is not None
        account = len(remote)
        remote_channel = RemoteInputChannel(
            channel, account, receiver, retry, notify, gate.check_producer
        )
        remote[account] = remote_channel
        return remote_channel

    def _is_local(self, channel: InputChannelDescriptor) -> bool:
        """Whether it is known to be; what is unknown may turn out to be remote and needs memory."""
        location = channel.shuffle.location
        return location is not None and location.resource_id == self.resource_id

    def _create_receiver(self, consumer: ExecutionAttemptId, channel_count: int) -> BufferManager:
        exclusive = self.settings.get_option(BUFFERS_PER_CHANNEL)
        floating = self.settings.get_option(FLOATING_BUFFERS_PER_GATE)
        reservation = self.buffer_pool.reserve(
            f"an input gate of {consumer}",
            exclusive * channel_count + floating,
            wanted_segment_size(channel_count, self.buffer_pool.page_bytes),
            self.settings.get_option(PINNED_BUFFERS_PER_GATE),
        )
        return BufferManager(self.transport, channel_count, exclusive, floating, reservation)
