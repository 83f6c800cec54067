"""ResultPartitionFactory: makes result partitions from their descriptors and chooses their memory and storage.

    kind                      subpartitions   implementation                  segments: required, at most
    PIPELINED_BOUNDED         n               pipelined                       n + 1, 2n + 8
    PIPELINED_APPROXIMATE     n               pipelined, replaceable consumer n + 1, 2n + 8
    BLOCKING                  < 8 (option)    bounded blocking                2, 10
    BLOCKING                  more            sort-merge                      512 (option) or 1/8 of free memory
                                                                    (1/4 for many consumers: see below)
    BLOCKING_PERSISTENT       n               as BLOCKING
    HYBRID_FULL, _SELECTIVE   n               hybrid                          2n + 8

Source: Flink ResultPartitionFactory.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from headrace.core.config import Settings
from headrace.core.shuffle_descriptors import ResultPartitionDescriptor, ResultPartitionType
from headrace.network.memory.local_buffer_pool import LocalBufferPool, WaitStrategy
from headrace.network.memory.network_buffer_pool import NetworkBufferPool
from headrace.network.memory.sizing import (
    FLOATING_BUFFERS_PER_GATE,
    MAX_BUFFERS_PER_CHANNEL,
    MAX_OVERDRAFT_BUFFERS,
    wanted_segment_size,
)
from headrace.network.partitions.approximate_subpartition import PipelinedApproximateSubpartition
from headrace.network.partitions.partition_manager import ResultPartitionManager
from headrace.network.partitions.pipelined_partition import PipelinedResultPartition
from headrace.network.partitions.pipelined_subpartition import PipelinedSubpartition
from headrace.network.partitions.result_partition import ResultPartition
from headrace.network.stored.bounded_blocking_partition import BoundedBlockingPartition
from headrace.network.stored.chunk_writer import MESSAGE_BYTES
from headrace.network.stored.file_format import BatchCompressor
from headrace.network.stored.hybrid_partition import HybridPartition
from headrace.network.stored.sort_merge_partition import (
    REGION_BYTES_MAX,
    SORT_SHUFFLE_MIN_BUFFERS,
    SORT_SHUFFLE_MIN_PARALLELISM,
    SortMergePartition,
)
from headrace.network.stored.stored_partition import PartitionStorage

FREE_MEMORY_SHARE: Final = 8
"""A sort-merge result collects its rows in 1 / FREE_MEMORY_SHARE of the free memory."""
MANY_CONSUMERS_SHARE: Final = 4
"""Divisor for results with many consumers: up to a quarter, if each would get less than a full batch per region."""
LEFT_BY_MANY_CONSUMERS: Final = 5 / 8
"""Share of all memory that must stay unreserved for MANY_CONSUMERS_SHARE to apply.

With it at least four fifths as many results fit as if each took an eighth, whatever the size of the pool.
"""
_Type = ResultPartitionType


@dataclass(frozen=True)
class _Size:
    """Number of segments of a pool and their size."""

    required: int
    maximum: int
    segment_bytes: int


class ResultPartitionFactory:
    """Makes the result partitions of one TaskManager. Any thread."""

    def __init__(
        self,
        settings: Settings,
        buffer_pool: NetworkBufferPool,
        wait: WaitStrategy,
        storage: PartitionStorage,
        manager: ResultPartitionManager,
    ) -> None:
        self._settings: Final = settings
        self._buffer_pool: Final = buffer_pool
        self._wait: Final = wait
        self._storage: Final = storage
        self._manager: Final = manager
        self._sort_from: Final = settings.get_option(SORT_SHUFFLE_MIN_PARALLELISM)
        self._floating: Final = settings.get_option(FLOATING_BUFFERS_PER_GATE)

    def create(self, descriptor: ResultPartitionDescriptor) -> ResultPartition:
        """Make a partition, with its memory and, for a stored kind, its file.

        InsufficientBuffersError if too little memory is left; StorageError if the file cannot be made.
        """
        match descriptor.result_type:
            case _Type.PIPELINED_BOUNDED | _Type.PIPELINED_APPROXIMATE:
                return self._pipelined(descriptor)
            case _Type.BLOCKING | _Type.BLOCKING_PERSISTENT if (
                descriptor.subpartition_count < self._sort_from
            ):
                return self._stored(
                    descriptor, self._write_through_size(), BoundedBlockingPartition
                )
            case _Type.BLOCKING | _Type.BLOCKING_PERSISTENT:
                return self._stored(
                    descriptor,
                    self._collecting_size(descriptor.subpartition_count),
                    SortMergePartition,
                )
            case _Type.HYBRID_FULL | _Type.HYBRID_SELECTIVE:
                size = self._memory_tier_size(descriptor.subpartition_count)
                is_full = descriptor.result_type is _Type.HYBRID_FULL
                return self._stored(descriptor, size, partial(HybridPartition, is_full=is_full))

    def _pipelined(self, descriptor: ResultPartitionDescriptor) -> ResultPartition:
        def create(pool: LocalBufferPool) -> ResultPartition:
            return PipelinedResultPartition(
                descriptor.partition_id,
                descriptor.subpartition_count,
                pool,
                self._settings.get_option(MAX_BUFFERS_PER_CHANNEL),
                self._manager,
                PipelinedApproximateSubpartition if is_approximate else PipelinedSubpartition,
            )

        count = descriptor.subpartition_count
        is_approximate = descriptor.result_type is _Type.PIPELINED_APPROXIMATE
        size = _Size(count + 1, 2 * count + self._floating, self._segment_bytes(count))
        return self._with_pool(descriptor, size, create)

    def _stored(
        self,
        descriptor: ResultPartitionDescriptor,
        size: _Size,
        kind: Callable[..., BoundedBlockingPartition | SortMergePartition | HybridPartition],
    ) -> ResultPartition:
        def create(pool: LocalBufferPool) -> ResultPartition:
            return kind(
                descriptor.partition_id,
                descriptor.subpartition_count,
                pool,
                self._storage,
                self._manager,
                BatchCompressor.from_settings(self._settings),
            )

        return self._with_pool(descriptor, size, create)

    def _write_through_size(self) -> _Size:
        """Return the size for results that write each batch before the next one is sealed."""
        return _Size(2, 2 + self._floating, self._segment_bytes(2))

    def _memory_tier_size(self, subpartition_count: int) -> _Size:
        """Return the largest size of a pipelined result, reserved in full: see `_collecting_size`."""
        count = 2 * subpartition_count + self._floating
        return _Size(max(4, count), max(4, count), self._segment_bytes(subpartition_count))

    def _collecting_size(self, subpartition_count: int) -> _Size:
        """Return a size that is reserved in full.

        Otherwise the task might hold rows while it waits for others' memory.
        """
        page_bytes = self._buffer_pool.page_bytes
        free = self._buffer_pool.unreserved_pages
        # A full batch for every consumer in each region, because the cost of a batch does not depend on its length.
        wanted = 2 * subpartition_count * MESSAGE_BYTES // page_bytes
        share, large = free // FREE_MEMORY_SHARE, free // MANY_CONSUMERS_SHARE
        if free - large >= LEFT_BY_MANY_CONSUMERS * self._buffer_pool.total_pages:
            share = max(share, min(wanted, large))
        share = min(share, 2 * REGION_BYTES_MAX // page_bytes)
        count = max(2, share, self._settings.get_option(SORT_SHUFFLE_MIN_BUFFERS))
        return _Size(count, count, page_bytes)

    def _segment_bytes(self, channel_count: int) -> int:
        return wanted_segment_size(channel_count, self._buffer_pool.page_bytes)

    def _with_pool(
        self,
        descriptor: ResultPartitionDescriptor,
        size: _Size,
        create: Callable[[LocalBufferPool], ResultPartition],
    ) -> ResultPartition:
        pool = self._buffer_pool.create_local_pool(
            f"result partition {descriptor.partition_id}",
            required=size.required,
            maximum=size.maximum,
            segment_size=size.segment_bytes,
            overdraft_max=self._settings.get_option(MAX_OVERDRAFT_BUFFERS),
            wait=self._wait,
        )
        try:
            return create(pool)
        except BaseException:
            pool.destroy()
            raise
