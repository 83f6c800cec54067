"""ChannelSelector and its implementations: assign the rows of a batch to the channels of their consumers.

REBALANCE, RESCALE and SHUFFLE send a batch of at least WHOLE_BATCH_ROWS rows to one channel as a whole: dealing its
rows one by one would divide the size of every batch downstream by the number of channels. Smaller batches are dealt row
by row.
Source: Flink StreamPartitioner and its subclasses.
"""

from collections.abc import Callable
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.core.config import ConfigOption, Settings
from headrace.core.key_groups import subtasks_of
from headrace.core.randomness import SeededRandom
from headrace.core.record_batch import RecordBatch
from headrace.core.types.pickles import unpickle_value
from headrace.graph.job_graph import PartitionerKind, PartitionerSpec
from headrace.network.errors import InvalidChannelError

WHOLE_BATCH_ROWS: Final = ConfigOption(
    "headrace.network.rebalance-whole-batch-rows", int, 256,
    "Rebalance, rescale and shuffle send batches of at least this many rows to one channel as a whole; 0: rows are "
    "always dealt one by one.",
)  # fmt: skip
ADAPTIVE_PARTITIONER: Final = ConfigOption(
    "taskmanager.network.adaptive-partitioner.enabled", bool, False,
    "Whether rebalance and rescale send rows to the consumer with the shortest queue, instead of strictly in turn.",
)  # fmt: skip
MAX_TRAVERSE_SIZE: Final = ConfigOption(
    "taskmanager.network.adaptive-partitioner.max-traverse-size", int, 4,
    "Number of consumers that the adaptive partitioner compares, from the one whose turn it is.",
    least=1,
)  # fmt: skip

# A range check of row numbers takes longer than copying short rows.
_UNCHECKED: Final = pc.TakeOptions(boundscheck=False)

Channels = npt.NDArray[np.int32]
Selection = list[tuple[int, RecordBatch]]
"""Pairs of a channel and its rows; each channel occurs at most once."""
LoadOf = Callable[[int], tuple[int, int]]
"""Return the elements and bytes queued for a channel; a snapshot, read by the task's thread."""


class ChannelSelector(Protocol):
    """Assigns the rows of one producer subtask to channels."""

    is_broadcast: bool
    deals_rows: bool
    """True if the rows of a batch usually go to many channels, so that several batches should be split together."""

    def select(self, batch: RecordBatch) -> Selection:
        """Return the rows of `batch` (num_rows >= 1) by channel. Not called for a broadcast."""
        ...

    def channels_of(self, batch: RecordBatch) -> Channels:
        """Return the channel of each row without splitting the batch; an alternative to `select` with equal results."""
        ...


class SingleChannelSelector:
    """Sends all rows to channel 0 (FORWARD and GLOBAL)."""

    is_broadcast = False
    deals_rows = False

    def select(self, batch: RecordBatch) -> Selection:
        return [(0, batch)]

    def channels_of(self, batch: RecordBatch) -> Channels:
        return np.zeros(batch.num_rows, dtype=np.int32)


class BroadcastSelector:
    """Sends all rows to every channel (BROADCAST)."""

    is_broadcast = True
    deals_rows = False

    def select(self, batch: RecordBatch) -> Selection:
        raise AssertionError("a broadcast selects no channel")

    def channels_of(self, batch: RecordBatch) -> Channels:
        raise AssertionError("a broadcast selects no channel")


class RoundRobinSelector:
    """Deals rows or whole batches in turn: REBALANCE starts at a random channel, RESCALE at channel 0."""

    is_broadcast = False
    deals_rows = False

    def __init__(self, channel_count: int, last_channel: int, whole_batch_rows: int) -> None:
        self._channel_count = channel_count
        self._last_channel = last_channel
        self._whole_batch_rows = whole_batch_rows

    def select(self, batch: RecordBatch) -> Selection:
        count = self._channel_count
        if count == 1:
            return [(0, batch)]
        first = (self._last_channel + 1) % count
        if batch.num_rows == 1 or 0 < self._whole_batch_rows <= batch.num_rows:
            self._last_channel = first
            return [(first, batch)]
        self._last_channel = (self._last_channel + batch.num_rows) % count
        return [
            (
                (first + turn) % count,
                batch.take(np.arange(turn, batch.num_rows, count, dtype=np.int64)),
            )
            for turn in range(min(count, batch.num_rows))
        ]

    def channels_of(self, batch: RecordBatch) -> Channels:
        count, rows = self._channel_count, batch.num_rows
        first = (self._last_channel + 1) % count
        if 0 < self._whole_batch_rows <= rows:
            self._last_channel = first
            return np.full(rows, first, dtype=np.int32)
        self._last_channel = (self._last_channel + rows) % count
        return (first + np.arange(rows, dtype=np.int32)) % count


class LoadAwareSelector:
    """Deals rows to the channel with the shortest queue among the next ones in turn (REBALANCE and RESCALE by load).

    `load_of` returns the elements and bytes that are queued for a channel; among equal queues the first in turn wins.
    All rows of a batch are dealt by the queue lengths from before the batch. Source: Flink
    AdaptiveLoadBasedRecordWriter.
    """

    is_broadcast = False
    deals_rows = False

    def __init__(
        self,
        channel_count: int,
        last_channel: int,
        whole_batch_rows: int,
        traverse_max: int,
        load_of: LoadOf,
    ) -> None:
        self._channel_count = channel_count
        self._last_channel = last_channel
        self._whole_batch_rows = whole_batch_rows
        self._traversed_count = min(traverse_max, channel_count)
        self._load_of = load_of

    def select(self, batch: RecordBatch) -> Selection:
        if self._is_whole(batch):
            return [(self._next_channel(), batch)]
        return deal(batch, self.channels_of(batch), self._channel_count)

    def channels_of(self, batch: RecordBatch) -> Channels:
        if self._is_whole(batch):
            return np.full(batch.num_rows, self._next_channel(), dtype=np.int32)
        following: dict[int, int] = {}
        channels: list[int] = []
        for _ in range(batch.num_rows):
            last = self._last_channel
            chosen = following.get(last)
            if chosen is None:
                chosen = following[last] = self._next_channel()
            self._last_channel = chosen
            channels.append(chosen)
        return np.array(channels, dtype=np.int32)

    def _is_whole(self, batch: RecordBatch) -> bool:
        return batch.num_rows == 1 or 0 < self._whole_batch_rows <= batch.num_rows

    def _next_channel(self) -> int:
        ahead = (
            (self._last_channel + step) % self._channel_count
            for step in range(1, self._traversed_count + 1)
        )
        self._last_channel = min(ahead, key=self._load_of)
        return self._last_channel


class ShuffleSelector:
    """Draws a random channel for each row or for each whole batch (SHUFFLE)."""

    is_broadcast = False
    deals_rows = False

    def __init__(self, channel_count: int, random: SeededRandom, whole_batch_rows: int) -> None:
        self._channel_count = channel_count
        self._random = random
        self._whole_batch_rows = whole_batch_rows

    def select(self, batch: RecordBatch) -> Selection:
        count = self._channel_count
        if count == 1 or batch.num_rows == 1 or 0 < self._whole_batch_rows <= batch.num_rows:
            return [(self._random.randrange(count), batch)]
        return deal(batch, self.channels_of(batch), count)

    def channels_of(self, batch: RecordBatch) -> Channels:
        count, rows = self._channel_count, batch.num_rows
        if 0 < self._whole_batch_rows <= rows:
            return np.full(rows, self._random.randrange(count), dtype=np.int32)
        drawn = [self._random.randrange(count) for _ in range(rows)]
        return np.array(drawn, dtype=np.int32)


class KeyGroupSelector:
    """Sends each row to the subtask that owns the key group of its key (HASH)."""

    is_broadcast = False
    deals_rows = True

    def __init__(self, channel_count: int, max_parallelism: int) -> None:
        self._channel_count = channel_count
        self._max_parallelism = max_parallelism

    def select(self, batch: RecordBatch) -> Selection:
        if self._channel_count == 1:
            return [(0, batch)]
        return deal(batch, self.channels_of(batch), self._channel_count)

    def channels_of(self, batch: RecordBatch) -> Channels:
        assert batch.key_hashes is not None, "a keyed edge carries batches with key hashes"
        return subtasks_of(batch.key_hashes, self._channel_count, self._max_parallelism)


class CustomSelector:
    """Sends each row to the channel that the user's partitioner returns (CUSTOM).

    The partitioner is called with the key and the number of channels.
    """

    is_broadcast = False
    deals_rows = True

    def __init__(
        self,
        channel_count: int,
        partitioner: Callable[[Any, int], Any],
        key_selector: Callable[[Any], Any],
    ) -> None:
        self._channel_count = channel_count
        self.partitioner: Final = partitioner
        self._key_selector = key_selector

    def select(self, batch: RecordBatch) -> Selection:
        """Return the rows by channel. InvalidChannelError if the user's partitioner returns an invalid channel."""
        return deal(batch, self.channels_of(batch), self._channel_count)

    def channels_of(self, batch: RecordBatch) -> Channels:
        """Return the channel of each row. InvalidChannelError if the user's partitioner returns an invalid channel."""
        channels = [self._channel_of(self._key_selector(row)) for row in batch.rows()]
        return np.array(channels, dtype=np.int32)

    def _channel_of(self, key: Any) -> int:
        chosen = self.partitioner(key, self._channel_count)
        if isinstance(chosen, (int, np.integer)) and 0 <= chosen < self._channel_count:
            return int(chosen)
        raise InvalidChannelError(key, chosen, self._channel_count)


def order_by_channel(
    channels: Channels, channel_count: int
) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Return the row numbers sorted by channel, stable within a channel, and the number of rows per channel.

    Shapes: (num_rows,), like `channels`, and (channel_count,).
    """
    # 16-bit numbers are sorted by radix, in linear time.
    narrow = channels.astype(np.uint16) if channel_count <= 1 << 16 else channels
    return np.argsort(narrow, kind="stable"), np.bincount(channels, minlength=channel_count)


def in_order(rows: pa.RecordBatch, order: npt.NDArray[np.intp]) -> pa.RecordBatch:
    """Return all of `rows` in the given order, shape (num_rows,), as `order_by_channel` returns it.

    The order is not checked: a check would take a third of the time.
    """
    return pc.call_function("take", [rows, pa.array(order)], _UNCHECKED)


def deal(batch: RecordBatch, channels: npt.NDArray[np.int32], channel_count: int) -> Selection:
    """Split `batch` by `channels` (shape (num_rows,)): one stable sort, one `take`, then slices without a copy."""
    first = int(channels[0])
    if (channels == first).all():
        return [(first, batch)]
    order, counts = order_by_channel(channels, channel_count)
    dealt = batch.take(order)
    selection: Selection = []
    start = 0
    for channel, count in enumerate(counts.tolist()):
        if count:
            selection.append((channel, dealt.slice(start, count)))
            start += count
    return selection


def create_selector(
    spec: PartitionerSpec,
    channel_count: int,
    consumer_max_parallelism: int,
    random: SeededRandom,
    settings: Settings | None = None,
    load_of: LoadOf | None = None,
) -> ChannelSelector:
    """Return the selector of one producer subtask. Unpickles a CUSTOM payload, so call it only in the task.

    `load_of` returns the elements and bytes queued for a channel; None if no consumer reads while the rows are written.
    """
    options = settings or Settings()
    whole_batch_rows = options.get_option(WHOLE_BATCH_ROWS)

    def in_turn(last_channel: int) -> ChannelSelector:
        if load_of is None or channel_count == 1 or not options.get_option(ADAPTIVE_PARTITIONER):
            return RoundRobinSelector(channel_count, last_channel, whole_batch_rows)
        traverse_max = options.get_option(MAX_TRAVERSE_SIZE)
        return LoadAwareSelector(
            channel_count, last_channel, whole_batch_rows, traverse_max, load_of
        )

    match spec.kind:
        case PartitionerKind.FORWARD:
            if channel_count == 1:
                return SingleChannelSelector()
            # The consumers of a forward edge were rescaled: spread the rows instead of sending all of them to one.
            return RoundRobinSelector(
                channel_count, random.randrange(channel_count), whole_batch_rows
            )
        case PartitionerKind.GLOBAL:
            return SingleChannelSelector()
        case PartitionerKind.BROADCAST:
            return BroadcastSelector()
        case PartitionerKind.REBALANCE:
            return in_turn(random.randrange(channel_count))
        case PartitionerKind.RESCALE:
            return in_turn(channel_count - 1)
        case PartitionerKind.SHUFFLE:
            return ShuffleSelector(channel_count, random, whole_batch_rows)
        case PartitionerKind.HASH:
            return KeyGroupSelector(channel_count, consumer_max_parallelism)
        case PartitionerKind.CUSTOM:
            partitioner, key_selector = unpickle_value(spec.payload)
            ask = getattr(partitioner, "partition", partitioner)
            return CustomSelector(
                channel_count, ask, getattr(key_selector, "get_key", key_selector)
            )
