"""InputGateFactory: from the description of an edge to a gate with its channels and their memory.

Source: Flink SingleInputGateFactory.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from headrace.core.config import Settings
from headrace.core.ids import ExecutionAttemptId, ResourceId
from headrace.core.shuffle_descriptors import InputChannelDescriptor, InputGateDescriptor
from headrace.network.gates.buffer_manager import BufferManager
from headrace.network.gates.gate import InputChannel
from headrace.network.gates.local_channel import LocalInputChannel
from headrace.network.gates.partition_requests import PartitionRequestBackoff
from headrace.network.gates.remote_channel import RemoteInputChannel
from headrace.network.gates.single_input_gate import SingleInputGate
from headrace.network.memory.network_buffer_pool import NetworkBufferPool
from headrace.network.memory.sizing import (
    BUFFERS_PER_CHANNEL,
    FLOATING_BUFFERS_PER_GATE,
    PINNED_BUFFERS_PER_GATE,
    wanted_segment_size,
)
from headrace.network.partitions.partition_manager import ResultPartitionManager
from headrace.network.sessions.transport import Transport


@dataclass(frozen=True)
class InputGateFactory:
    """Makes the gates of one TaskManager."""

    resource_id: ResourceId
    settings: Settings
    buffer_pool: NetworkBufferPool
    partitions: ResultPartitionManager
    transport: Transport

    def create(
        self, descriptor: InputGateDescriptor, consumer: ExecutionAttemptId
    ) -> SingleInputGate:
        """Reserve memory for the channels of a gate; nothing is requested yet. InsufficientBuffersError."""
        remote_count = sum(not self._is_local(channel) for channel in descriptor.channels)
        receiver = self._create_receiver(consumer, remote_count) if remote_count else None
        gate = SingleInputGate(receiver)
        grants: dict[int, Callable[[int], None]] = {}
        channels: list[InputChannel] = []
        for index, channel in enumerate(descriptor.channels):
            retry = PartitionRequestBackoff.from_settings(self.settings)
            notify = partial(gate.notify, index)
            if self._is_local(channel):
                made = LocalInputChannel(
                    channel, self.partitions, self.transport, retry, notify, gate.check_producer
                )
            else:
                assert receiver is not None
                made = RemoteInputChannel(
                    channel, len(grants), receiver, retry, notify, gate.check_producer
                )
                grants[len(grants)] = made.grant
            channels.append(made)
        if receiver is not None:
            receiver.serve(grants)
        gate.serve(channels)
        return gate

    def _is_local(self, channel: InputChannelDescriptor) -> bool:
        return channel.shuffle.location.resource_id == self.resource_id

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
