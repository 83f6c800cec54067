"""CreditBasedShuffleEnvironment: the data plane of one TaskManager.

Owns its network memory, partitions, gates, transport and ingest server. Source: Flink NettyShuffleEnvironment.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from headrace.core.clock import Clock
from headrace.core.config import Settings
from headrace.core.ids import ExecutionAttemptId, ResourceId, ResultPartitionId
from headrace.core.process.memory_parts import own_memory_parts
from headrace.core.randomness import SeededRandom
from headrace.core.security.tls import TlsIdentity
from headrace.core.shuffle_descriptors import (
    InputChannelDescriptor,
    InputGateDescriptor,
    ResultPartitionDescriptor,
    TaskManagerLocation,
)
from headrace.metrics.groups import MetricGroup
from headrace.network.gates.buffer_manager import BufferManager
from headrace.network.gates.gate import InputChannel
from headrace.network.gates.local_channel import LocalInputChannel
from headrace.network.gates.partition_requests import (
    PARTITION_REQUEST_TIMEOUT,
    PartitionRequestBackoff,
    to_ms,
)
from headrace.network.gates.remote_channel import RemoteInputChannel
from headrace.network.gates.single_input_gate import SingleInputGate
from headrace.network.ingest.server import INGEST_CREDIT, INGEST_NAME, IngestServer, IngestSession
from headrace.network.memory.local_buffer_pool import BlockingWait, WaitStrategy
from headrace.network.memory.network_buffer_pool import NetworkBufferPool
from headrace.network.memory.sizing import (
    BUFFERS_PER_CHANNEL,
    FLOATING_BUFFERS_PER_GATE,
    PINNED_BUFFERS_PER_GATE,
    segment_bytes,
    wanted_segment_size,
)
from headrace.network.metrics import register_pool_metrics
from headrace.network.partition_factory import ResultPartitionFactory
from headrace.network.partitions.partition_manager import ResultPartitionManager
from headrace.network.partitions.result_partition import ResultPartition
from headrace.network.sessions.consumer_session import ConsumerSession
from headrace.network.sessions.peer_session import PeerSession, Session
from headrace.network.sessions.producer_session import ProducerSession
from headrace.network.sessions.transport import Link, Transport
from headrace.network.stored.io_pool import IoExecutor, ThreadIoPool
from headrace.network.stored.spill_files import FileLayer, SpillDirectories
from headrace.network.stored.stored_partition import PartitionStorage
from headrace.network.stored.stored_view import BATCH_SHUFFLE_READ_SIZE, ReadMemory
from headrace.network.transport.socket_transport import SocketTransport
from headrace.network.wire.frames import Feature
from headrace.network.wire.handshake import offered_features
from headrace.network.wire.keepalive import KeepAlivePolicy


@dataclass(frozen=True)
class InputGateFactory:
    """Makes the input gates of one TaskManager, with their channels and memory, from the description of an edge.

    Source: Flink SingleInputGateFactory.
    """

    resource_id: ResourceId
    settings: Settings
    buffer_pool: NetworkBufferPool
    partitions: ResultPartitionManager
    transport: Transport

    def create(
        self, descriptor: InputGateDescriptor, consumer: ExecutionAttemptId
    ) -> SingleInputGate:
        """Make a gate and reserve memory for its channels, without requesting partitions.

        InsufficientBuffersError if too little network memory is left.
        """
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


class CreditBasedShuffleEnvironment:
    """Shuffle environment that keeps results on their TaskManager and sends them to consumers that granted credit."""

    def __init__(
        self,
        *,
        resource_id: ResourceId,
        settings: Settings,
        secret: bytes,
        bind_host: str,
        advertised_host: str,
        clock: Clock,
        random: SeededRandom,
        socket_directory: Path | None,
        tls: TlsIdentity | None = None,
        metrics: MetricGroup | None = None,
        on_fatal_error: Callable[[BaseException], None] | None = None,
        transport: Transport | None = None,
        wait: WaitStrategy | None = None,
        io: IoExecutor | None = None,
        files: FileLayer | None = None,
        partitions: ResultPartitionManager | None = None,
    ) -> None:
        self.resource_id: Final = resource_id
        self.secret: Final = secret
        self.random: Final = random
        self.settings: Final = settings
        self.clock: Final = clock
        self.transport: Final[Transport] = transport or SocketTransport(
            settings, bind_host, advertised_host, socket_directory, tls, on_fatal_error
        )
        self.partitions: Final = partitions or ResultPartitionManager(str(resource_id))
        self.features: Final = offered_features(settings)
        self.keep_alive: Final = KeepAlivePolicy.from_settings(settings)
        self.buffer_pool: Final = _create_buffer_pool(settings, metrics)
        self.storage: Final = _open_storage(
            io or ThreadIoPool(f"result files {resource_id}", on_fatal_error=on_fatal_error),
            settings,
            files,
        )
        self._partition_factory: Final = ResultPartitionFactory(
            settings,
            self.buffer_pool,
            wait or BlockingWait(),
            self.storage,
            self.partitions,
        )
        self._gate_factory: Final = InputGateFactory(
            resource_id,
            settings,
            self.buffer_pool,
            self.partitions,
            self.transport,
        )
        self._request_timeout_ms = to_ms(settings.get_option(PARTITION_REQUEST_TIMEOUT))
        self.ingest: Final = IngestServer(
            self.transport, settings.get_option(INGEST_CREDIT), self._request_timeout_ms
        )

    @property
    def name(self) -> str:
        return str(self.resource_id)

    def start(self) -> TaskManagerLocation:
        return self.transport.start(self)

    def create_result_partition(self, descriptor: ResultPartitionDescriptor) -> ResultPartition:
        """Make a partition and register it.

        InsufficientBuffersError if memory is short; StorageError if its files fail.
        """
        partition = self._partition_factory.create(descriptor)
        self.partitions.register(partition)
        return partition

    def create_input_gate(
        self, descriptor: InputGateDescriptor, consumer: ExecutionAttemptId
    ) -> SingleInputGate:
        """Make a gate with its channels. InsufficientBuffersError if too little network memory is left."""
        return self._gate_factory.create(descriptor, consumer)

    def release_partitions(self, partition_ids: Sequence[ResultPartitionId]) -> None:
        """Drop partitions, even while consumers read them."""
        self.partitions.release(partition_ids)

    def close(self) -> None:
        self.partitions.release_all()
        try:
            self.transport.close()
        finally:
            self.storage.close()

    def open_session(self, link: Link, peer_name: str, features: int) -> Session:
        has_checksums = bool(features & Feature.CHECKSUM)
        if peer_name == INGEST_NAME:
            return IngestSession(link, self.ingest, has_checksums=has_checksums)
        producer = ProducerSession(
            self.partitions,
            self.transport,
            link,
            self._request_timeout_ms,
            has_checksums=has_checksums,
        )
        return PeerSession(link, producer, ConsumerSession(link, has_checksums=has_checksums))


def _create_buffer_pool(settings: Settings, metrics: MetricGroup | None) -> NetworkBufferPool:
    memory = own_memory_parts(settings).network
    pool = NetworkBufferPool(memory, segment_bytes(settings, memory))
    if metrics is not None:
        register_pool_metrics(metrics, pool)
    return pool


def _open_storage(io: IoExecutor, settings: Settings, files: FileLayer | None) -> PartitionStorage:
    return PartitionStorage(
        io,
        SpillDirectories.from_settings(settings, io.submit, files),
        ReadMemory(settings.get_option(BATCH_SHUFFLE_READ_SIZE)),
    )
