"""RemoteShuffleEnvironment: pushes a TaskManager's blocking results to a shuffle service.

The shuffle master decides for each edge: a result whose descriptor is external is pushed. Everything else, such as
reading, is as in the built-in shuffle: to a gate, the service is one more process with a data plane.
Source: Flink Remote Shuffle's RemoteShuffleEnvironment.
"""

import threading
from collections.abc import Sequence
from functools import partial
from typing import Final

from headrace.cluster.task_executor.shuffle_service_loader import create_credit_based_environment
from headrace.core.ids import ExecutionAttemptId, ResultPartitionId
from headrace.core.randomness import system_random
from headrace.core.shuffle_descriptors import (
    InputGateDescriptor,
    ResultPartitionDescriptor,
    TaskManagerLocation,
)
from headrace.network.environment import CreditBasedShuffleEnvironment
from headrace.network.errors import ConnectionLostError, NetworkError
from headrace.network.gates.single_input_gate import SingleInputGate
from headrace.network.ingest.server import IngestServer
from headrace.network.memory.sizing import (
    FLOATING_BUFFERS_PER_GATE,
    MAX_OVERDRAFT_BUFFERS,
    wanted_segment_size,
)
from headrace.network.partitions.partition_manager import ResultPartitionManager
from headrace.network.partitions.result_partition import ResultPartition
from headrace.network.sessions.peer_session import PeerSession, Session
from headrace.network.sessions.transport import Link
from headrace.network.shuffle_environment import ShuffleEnvironmentContext
from headrace.shuffle_service.errors import ShuffleServiceLostError
from headrace.shuffle_service.options import ADMISSION_TIMEOUT, PUSH_TIMEOUT
from headrace.shuffle_service.remote_partition import PushSender, RemoteResultPartition
from headrace.shuffle_service.service import SERVICE_NAME_PREFIX

_SEGMENTS_MIN: Final = 2


class _ReadingEnvironment(CreditBasedShuffleEnvironment):
    """The built-in environment, with sessions that raise ShuffleServiceLostError if a shuffle service disconnects."""

    def open_session(self, link: Link, peer_name: str, features: int) -> Session:
        session = super().open_session(link, peer_name, features)
        if peer_name.startswith(SERVICE_NAME_PREFIX) and isinstance(session, PeerSession):
            return _ServiceSession(link, session.producer, session.consumer)
        return session


class _ServiceSession(PeerSession):
    """A connection to a shuffle service; its loss is not attributed to a task."""

    def lost(self, error: NetworkError) -> None:
        if isinstance(error, ConnectionLostError):
            error = ShuffleServiceLostError(error.peer, error.reason)
        super().lost(error)


class RemoteShuffleEnvironment:
    """Creates a TaskManager's partitions and gates: external results are pushed to a shuffle service."""

    def __init__(self, context: ShuffleEnvironmentContext) -> None:
        self._context: Final = context
        self._built_in: Final = create_credit_based_environment(context, _ReadingEnvironment)
        # Guards the set: tasks are deployed by the control thread and end on their own.
        self._lock = threading.Lock()
        self._pushing: set[RemoteResultPartition] = set()

    @property
    def partitions(self) -> ResultPartitionManager:
        return self._built_in.partitions

    @property
    def ingest(self) -> IngestServer:
        return self._built_in.ingest

    @property
    def pushing_count(self) -> int:
        """Return the number of results that are being pushed."""
        return len(self._pushing)

    def start(self) -> TaskManagerLocation:
        return self._built_in.start()

    def create_result_partition(self, descriptor: ResultPartitionDescriptor) -> ResultPartition:
        shuffle = descriptor.shuffle
        if shuffle is None or not shuffle.is_external:
            return self._built_in.create_result_partition(descriptor)
        context, memory = self._context, self._built_in.buffer_pool
        pool = memory.create_local_pool(
            f"pushed result {descriptor.partition_id}",
            required=_SEGMENTS_MIN,
            maximum=_SEGMENTS_MIN + context.settings.get_option(FLOATING_BUFFERS_PER_GATE),
            segment_size=wanted_segment_size(_SEGMENTS_MIN, memory.page_bytes),
            overdraft_max=context.settings.get_option(MAX_OVERDRAFT_BUFFERS),
        )
        # With randomness of its own: the task's thread connects, and the context's belongs to the transport's.
        connect = partial(
            PushSender,
            shuffle.location,
            context.secret,
            system_random(),
            context.tls,
            descriptor.partition_id,
            descriptor.subpartition_count,
            context.settings.get_option(ADMISSION_TIMEOUT).total_seconds(),
            context.settings.get_option(PUSH_TIMEOUT).total_seconds(),
        )
        partition = RemoteResultPartition(
            descriptor.partition_id, descriptor.subpartition_count, pool, connect, self._over
        )
        with self._lock:
            self._pushing.add(partition)
        return partition

    def create_input_gate(
        self, descriptor: InputGateDescriptor, consumer: ExecutionAttemptId
    ) -> SingleInputGate:
        return self._built_in.create_input_gate(descriptor, consumer)

    def release_partitions(self, partition_ids: Sequence[ResultPartitionId]) -> None:
        self._built_in.release_partitions(partition_ids)

    def close(self) -> None:
        with self._lock:
            pushing = list(self._pushing)
        for partition in pushing:
            partition.release()
        self._built_in.close()

    def _over(self, partition: RemoteResultPartition) -> None:
        with self._lock:
            self._pushing.discard(partition)
