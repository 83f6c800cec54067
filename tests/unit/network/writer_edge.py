"""A record writer with the views of its consumers, on one thread."""

from dataclasses import dataclass, field

import pyarrow as pa

from headrace.core.clock import ManualClock
from headrace.core.config import Settings
from headrace.core.key_hash import hash_array
from headrace.core.randomness import SeededRandom
from headrace.core.record_batch import RecordBatch
from headrace.core.types.type_info import Types
from headrace.graph.job_graph import PartitionerKind, PartitionerSpec
from headrace.network.batches.channel_selectors import create_selector
from headrace.network.memory.local_buffer_pool import NeverWait
from headrace.network.memory.network_buffer_pool import NetworkBufferPool
from headrace.network.partitions.partition_manager import ResultPartitionManager
from headrace.network.partitions.pipelined_partition import PipelinedResultPartition
from headrace.network.partitions.result_partition import ResultPartition
from headrace.network.partitions.result_subpartition import (
    LOCAL_SEGMENT_BYTES,
    DataElement,
    QueuedEvent,
    ResultSubpartitionView,
)
from headrace.network.writers.record_writer import RecordWriter, create_record_writer
from tests.unit.network.exchange import numbers, partition_id

PLENTY = 1 << 40


@dataclass
class Edge:
    """A writer and the views of its consumers."""

    writer: RecordWriter
    views: list[ResultSubpartitionView]
    network: NetworkBufferPool
    released: list[ResultPartition]
    failures: list[str]
    notified: list[int] = field(default_factory=list)
    segments_when_notified: list[int] = field(default_factory=list)
    clock: ManualClock = field(default_factory=ManualClock)

    def read(self, channel: int = 0) -> list[object]:
        """Everything that waits: rows with markers, or events."""
        found: list[object] = []
        while (element := self.views[channel].poll(PLENTY)) is not None:
            if isinstance(element, DataElement):
                if element.lease is not None:
                    element.lease.release()
                arrow = element.sealed.arrow
                rows = [] if arrow is None else arrow.column(0).to_pylist()
                found.append((rows, element.sealed.markers) if element.sealed.markers else rows)
            elif isinstance(element, QueuedEvent):
                found.append(element.event)
        return found


class RecordingManager(ResultPartitionManager):
    """Keeps how partitions end."""

    def __init__(self, owner: str) -> None:
        super().__init__(owner)
        self.released: list[ResultPartition] = []
        self.failures: list[str] = []

    def forget(self, partition: ResultPartition) -> None:
        self.released.append(partition)

    def record_failure(self, partition: ResultPartition, cause_text: str) -> None:
        self.failures.append(cause_text)


def edge(
    channel_count: int = 1,
    kind: PartitionerKind = PartitionerKind.RESCALE,
    timeout_ms: int = -1,
    segment_size: int = LOCAL_SEGMENT_BYTES,
    overdraft: int = 5,
    **options: str,
) -> Edge:
    network = NetworkBufferPool(1 << 26, 32 * 1024)
    pool = network.create_local_pool(
        "a test",
        required=channel_count + 1,
        maximum=2 * channel_count + 8,
        segment_size=1 << 20,
        overdraft_max=overdraft,
        wait=NeverWait(),
    )
    manager = RecordingManager("a test")
    partition = PipelinedResultPartition(partition_id(), channel_count, pool, 10, manager)
    selector = create_selector(PartitionerSpec(kind), channel_count, 128, SeededRandom(0))
    settings = Settings(
        {key.replace("__", "-").replace("_", "."): value for key, value in options.items()}
    )
    clock = ManualClock()
    writer = create_record_writer(partition, selector, timeout_ms, clock, settings)
    made = Edge(writer, [], network, manager.released, manager.failures, clock=clock)
    for index, subpartition in enumerate(partition.subpartitions):

        def notify(index: int = index) -> None:
            made.notified.append(index)
            made.segments_when_notified.append(pool.used)

        made.views.append(subpartition.create_view(notify, segment_size))
    return made


def keyed(first: int, count: int) -> RecordBatch:
    """Rows that are their own keys."""
    batch = numbers(first, count)
    keys = pa.array(range(first, first + count))
    return batch.with_keys(Types.LONG(), hash_array(keys), keys_array=keys)
