"""A shuffle service and TaskManagers that use it, over real sockets and without a JobManager."""

from pathlib import Path
from typing import Any

from headrace.core.clock import SystemClock
from headrace.core.config import Settings
from headrace.core.elements import EndOfData, StopMode
from headrace.core.ids import ResourceId, ResultPartitionId
from headrace.core.randomness import SeededRandom
from headrace.core.security.tls import TlsIdentity
from headrace.core.shuffle_descriptors import (
    InputChannelDescriptor,
    InputGateDescriptor,
    ResultPartitionDescriptor,
    ResultPartitionType,
    ShuffleDescriptor,
)
from headrace.graph.job_graph import PartitionerKind, PartitionerSpec
from headrace.network.batches.channel_selectors import create_selector
from headrace.network.gates.single_input_gate import SingleInputGate
from headrace.network.partitions.result_partition import ResultPartition
from headrace.network.shuffle_environment import ShuffleEnvironmentContext
from headrace.network.writers.record_writer import RecordWriter, create_record_writer
from headrace.shuffle_service.remote_shuffle_environment import RemoteShuffleEnvironment
from headrace.shuffle_service.service import ShuffleService
from tests.unit.network.exchange import NUMBERS, SECRET, attempt, numbers, partition_id

_SIZES = {
    "taskmanager.memory.network.min": "8mb",
    "taskmanager.memory.network.max": "8mb",
    "shuffle-service.memory.write": "4mb",
    "shuffle-service.memory.write-per-partition": "1mb",
    # Twice this is how long a consumer looks for a service that is gone.
    "taskmanager.network.request-backoff.initial": "10 ms",
    "taskmanager.network.request-backoff.max": "500 ms",
}


def settings_of(options: dict[str, str]) -> Settings:
    return Settings({**_SIZES, **options})


def new_service(
    directory: Path, tls: TlsIdentity | None = None, secret: bytes = SECRET, **options: str
) -> ShuffleService:
    settings = settings_of({key.replace("__", "."): value for key, value in options.items()})
    return ShuffleService(
        settings,
        directory=directory,
        secret=secret,
        bind_host="127.0.0.1",
        advertised_host="127.0.0.1",
        clock=SystemClock(),
        random=SeededRandom(str(directory)),
        socket_directory=None,
        tls=tls,
    )


def new_task_manager(
    name: str, tls: TlsIdentity | None = None, secret: bytes = SECRET, **options: str
) -> RemoteShuffleEnvironment:
    environment = RemoteShuffleEnvironment(
        ShuffleEnvironmentContext(
            resource_id=ResourceId(name),
            settings=settings_of({key.replace("__", "."): each for key, each in options.items()}),
            secret=secret,
            bind_host="127.0.0.1",
            advertised_host="127.0.0.1",
            clock=SystemClock(),
            random=SeededRandom(name),
            socket_directory=None,
            tls=tls,
            metrics=None,
        )
    )
    environment.start()
    return environment


def register(service: ShuffleService, key: ResultPartitionId, count: int) -> ShuffleDescriptor:
    """What the master does."""
    service.register_partition(key, count)
    return ShuffleDescriptor(key, service.location, is_external=True)


def produce(
    environment: RemoteShuffleEnvironment, shuffle: ShuffleDescriptor, count: int
) -> ResultPartition:
    return environment.create_result_partition(
        ResultPartitionDescriptor(
            shuffle.partition_id, ResultPartitionType.BLOCKING, count, shuffle
        )
    )


def writer_of(
    partition: ResultPartition, kind: PartitionerKind = PartitionerKind.REBALANCE
) -> RecordWriter:
    selector = create_selector(
        PartitionerSpec(kind), partition.subpartition_count, 128, SeededRandom(1)
    )
    return create_record_writer(partition, selector, -1, SystemClock())


def consume(
    environment: RemoteShuffleEnvironment, shuffle: ShuffleDescriptor, index: int
) -> SingleInputGate:
    channels = (InputChannelDescriptor(shuffle, index),)
    gate: Any = environment.create_input_gate(
        InputGateDescriptor(shuffle.partition_id.data_set_id, 0, channels),
        attempt("consumer", index),
    )
    gate.read_as(NUMBERS)
    gate.request_partitions()
    return gate


def push(
    environment: RemoteShuffleEnvironment,
    service: ShuffleService,
    count: int = 1,
    rows: int = 1000,
    key: ResultPartitionId | None = None,
    kind: PartitionerKind = PartitionerKind.REBALANCE,
) -> Any:
    """A whole result; returns its descriptor."""
    shuffle = register(service, key or partition_id(), count)
    writer = writer_of(produce(environment, shuffle, count), kind)
    for start in range(0, rows, 100):
        writer.emit(numbers(start, min(100, rows - start)))
    writer.emit_event(EndOfData(StopMode.DRAIN))
    writer.finish()
    writer.close()
    return shuffle
