"""PartitionBuffer: collects batches for many channels and splits them together. Pure.

Splitting a batch costs some microseconds per channel, however few rows the channel gets: with hundreds of channels
more than all other work for a row. So batches wait here until there are enough rows, or bytes, per
channel; then one sort of the channel numbers and one `take` split them all, and each channel gets one slice.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from headrace.core.elements import PlacedMarker, StreamMarker
from headrace.core.record_batch import RecordBatch, concat_batches
from headrace.network.batches.channel_selectors import Channels, in_order, order_by_channel
from headrace.network.wire.framing import add_marker

ROWS_PER_CHANNEL: Final = 256
BYTES_PER_CHANNEL: Final = 16 * 1024
MARKERS_MAX: Final = 256
SHARE_WEIGHT: Final = 0.25
"""Weight of the last split in the estimate of each channel's share of the rows."""


@dataclass(frozen=True, slots=True)
class ChannelShare:
    """Rows for one channel, with the markers between them; `rows` and `schema` are None if there are only markers.

    `schema` is kept with `rows` because pyarrow makes a new object on each access, and comparisons want the same one.
    The rows take about `size_bytes` on the wire.
    """

    channel: int
    rows: pa.RecordBatch | None
    schema: pa.Schema | None
    size_bytes: float
    markers: tuple[PlacedMarker, ...]


@dataclass(frozen=True, slots=True)
class _UnplacedMarker:
    """A marker behind the first `row_number` rows; `channel` is None if all channels get it."""

    row_number: int
    marker: StreamMarker
    channel: int | None


class PartitionBuffer:
    """Collects batches with the channel of each row, and the markers between them."""

    def __init__(self, channel_count: int, rows_per_channel: int = ROWS_PER_CHANNEL) -> None:
        self._channel_count = channel_count
        self._rows_max = rows_per_channel * channel_count
        # Share of the rows that the largest channel gets; a decaying average.
        self._counts = np.zeros(channel_count)
        self._largest_share = 1 / channel_count
        self._bytes_max = BYTES_PER_CHANNEL * channel_count
        self._batches: list[RecordBatch] = []
        self._channels: list[Channels] = []
        self._markers: list[_UnplacedMarker] = []
        self._row_count = self._size_bytes = 0
        self._schema: pa.Schema | None = None

    @property
    def is_empty(self) -> bool:
        """Return whether there is nothing to split."""
        return not self._batches and not self._markers

    @property
    def is_enough(self) -> bool:
        """Return whether the buffer should be split now."""
        return (
            self._row_count >= self._rows_max
            or self._size_bytes >= self._bytes_max
            or len(self._markers) >= MARKERS_MAX
        )

    def limit_rows(self, rows_per_channel: int, rows_of_largest: int) -> None:
        """Set the number of rows per channel, and for the largest channel, at which to split."""
        largest = self.rows_with(rows_of_largest)
        self._rows_max = min(rows_per_channel * self._channel_count, largest)

    def rows_with(self, rows_of_largest: int) -> int:
        """Return the number of rows of which about `rows_of_largest` go to the largest channel; at least one."""
        return max(1, round(rows_of_largest / self._largest_share))

    def append(self, batch: RecordBatch, channels: Channels) -> None:
        """Add rows; `channels`, shape (num_rows,), gives the channel of each."""
        self._batches.append(batch)
        self._channels.append(channels)
        self._row_count += batch.num_rows
        self._size_bytes += pa.ipc.get_record_batch_size(batch.columns())

    def append_marker(self, marker: StreamMarker, channel: int | None = None) -> None:
        """Add a marker for all channels, or for one, behind the rows added so far."""
        self._markers.append(_UnplacedMarker(self._row_count, marker, channel))

    def split(self) -> Iterator[ChannelShare]:
        """Yield the share of each channel that has one, and clear the buffer."""
        batches, self._batches = self._batches, []
        channels, self._channels = self._channels, []
        markers, self._markers = self._markers, []
        self._row_count = self._size_bytes = 0
        if not batches:
            for channel in range(self._channel_count):
                if alone := _place(markers, [0] * len(markers), channel):
                    yield ChannelShare(channel, None, None, 0.0, alone)
            return
        rows = concat_batches(batches)
        numbers = channels[0] if len(channels) == 1 else np.concatenate(channels)
        yield from self._shares(rows, numbers, markers)

    def _shares(
        self, rows: RecordBatch, channels: Channels, markers: Sequence[_UnplacedMarker]
    ) -> Iterator[ChannelShare]:
        order, count_of = order_by_channel(channels, self._channel_count)
        counts = count_of.tolist()
        self._counts += (count_of - self._counts) * SHARE_WEIGHT
        self._largest_share = float(self._counts.max() / self._counts.sum())
        is_single = counts[channels[0]] == len(channels)
        arrow = rows.to_arrow()
        if not is_single:
            arrow = in_order(arrow, order)
        row_bytes = pa.ipc.get_record_batch_size(arrow) / len(order)
        schema = arrow.schema
        if self._schema is not None and self._schema.equals(schema):
            # The schema object that all channels hold already, so that they need not compare.
            schema = self._schema
        self._schema = schema
        marker_rows = np.array([each.row_number for each in markers], dtype=np.intp)
        start = 0
        for channel, count in enumerate(counts):
            placed: tuple[PlacedMarker, ...] = ()
            if markers:
                numbers = order[start : start + count]
                placed = _place(markers, np.searchsorted(numbers, marker_rows).tolist(), channel)
            if count:
                mine = arrow.slice(start, count)
                yield ChannelShare(channel, mine, schema, count * row_bytes, placed)
            elif placed:
                yield ChannelShare(channel, None, None, 0.0, placed)
            start += count


def _place(
    markers: Sequence[_UnplacedMarker], offsets: Sequence[int], channel: int
) -> tuple[PlacedMarker, ...]:
    """Place a channel's markers before its rows at `offsets`; see `add_marker`."""
    placed: list[PlacedMarker] = []
    for each, offset in zip(markers, offsets, strict=True):
        if each.channel is None or each.channel == channel:
            add_marker(placed, PlacedMarker(offset, each.marker))
    return tuple(placed)
