"""Regions of a sort-merge partition: sort rows and markers by subpartition. Pure.

A region holds the rows that fit the partition's memory. It consists of runs: some megabytes of rows each, sorted in the
order of their subpartitions by one stable sort of channel numbers as soon as they arrive, while the processor's caches
still hold them. A subpartition's part of the region is its rows of the first run, then those of the next: within a
subpartition they stay in the order of emission. (One sort of the whole region copies each row twice, with accesses all
over the memory, and reaches a third of the speed.) Source: Flink SortBuffer, DataBuffer.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.core.elements import PlacedMarker, StreamMarker
from headrace.network.batches.channel_selectors import Channels, in_order, order_by_channel
from headrace.network.batches.sealed_batch import SealedBatch
from headrace.network.wire.framing import add_marker

RUN_BYTES: Final = 2 << 20
"""Number of bytes of rows that are sorted at once; see RUN_BYTES_PER_CHANNEL."""
RUN_BYTES_PER_CHANNEL: Final = 16 << 10
"""Least bytes per subpartition in a sorted run, because joining tiny parts again costs time."""


@dataclass(frozen=True)
class RegionPlan:
    """Order in which the rows of a region are stored.

    `order`, shape (num_rows,), has the row numbers by subpartition; subpartition `c` owns the range `starts[c:c + 2]`.
    """

    order: npt.NDArray[np.intp]
    starts: npt.NDArray[np.intp]

    def rows_of(self, channel: int) -> npt.NDArray[np.intp]:
        """Return the ascending row numbers of one subpartition."""
        return self.order[self.starts[channel] : self.starts[channel + 1]]

    def markers_of(
        self, channel: int, markers: Sequence[tuple[int, StreamMarker]]
    ) -> tuple[PlacedMarker, ...]:
        """Place markers, each with the number of the row that it precedes, among the rows of one subpartition.

        Of several watermarks without a row of this subpartition between them, only the last one is kept.
        """
        rows = self.rows_of(channel)
        placed: list[PlacedMarker] = []
        for row_number, marker in markers:
            add_marker(placed, PlacedMarker(int(np.searchsorted(rows, row_number)), marker))
        return tuple(placed)


def plan_region(channels: Channels, channel_count: int) -> RegionPlan:
    """Return the storage order of rows whose subpartitions are `channels`, shape (num_rows,)."""
    order, counts = order_by_channel(channels, channel_count)
    starts = np.zeros(channel_count + 1, dtype=np.intp)
    np.cumsum(counts, out=starts[1:])
    return RegionPlan(order, starts)


def rotated(channel_count: int, first: int) -> list[range]:
    """Return the subpartitions in the storage order of a region, as ranges: from `first` on, then those before it.

    Producers start with different ones, so that consumers do not all start at the same end of all files.
    """
    first %= channel_count
    return [run for run in (range(first, channel_count), range(first)) if run]


@dataclass(frozen=True)
class SortedRun:
    """Rows sorted by `plan`, None if there are only markers, and markers with the rows that they precede."""

    rows: pa.RecordBatch | None
    row_bytes: float
    starts: list[int]
    """Starts of the plan as Python integers, which are faster to read than those of an array."""
    plan: RegionPlan
    markers: Sequence[tuple[int, StreamMarker]]


def run_bytes(channel_count: int, region_bytes: int) -> int:
    """Return the bytes to sort at once, at most a quarter of a region."""
    wanted = max(RUN_BYTES, RUN_BYTES_PER_CHANNEL * channel_count)
    return max(1, min(wanted, region_bytes // 4))


def sort_run(
    batches: Sequence[pa.RecordBatch],
    channels: Sequence[Channels],
    channel_count: int,
    markers: Sequence[tuple[int, StreamMarker]],
) -> SortedRun:
    """Sort rows of one schema by the subpartition of each."""
    plan = plan_region(np.concatenate([np.zeros(0, dtype=np.int32), *channels]), channel_count)
    starts = plan.starts.tolist()
    if not batches:
        return SortedRun(None, 0.0, starts, plan, markers)
    rows = batches[0] if len(batches) == 1 else pa.concat_batches(batches)
    is_sorted = int(plan.starts[-1]) in np.diff(plan.starts)
    if not is_sorted:
        rows = in_order(rows, plan.order)
    if not markers:
        # Only markers need the plan, and it may be as large as the rows.
        plan = RegionPlan(plan.order[:0], plan.starts)
    return SortedRun(rows, rows.nbytes / max(1, rows.num_rows), starts, plan, markers)


def batches_of(runs: Sequence[SortedRun], channel: int, batch_bytes: int) -> Iterator[SealedBatch]:
    """Yield the rows and markers of one subpartition, joining small parts into batches of up to about `batch_bytes`."""
    parts: list[pa.RecordBatch] = []
    placed: list[PlacedMarker] = []
    row_count = 0
    size = 0.0
    for run in runs:
        start = run.starts[channel]
        share = run.starts[channel + 1] - start
        if share and run.rows is not None:
            added = run.row_bytes * share
            if parts and size + added > batch_bytes:
                yield _joined(parts, placed)
                parts, placed, row_count, size = [], [], 0, 0.0
            parts.append(run.rows.slice(start, share))
            size += added
        if run.markers:
            for each in run.plan.markers_of(channel, run.markers):
                add_marker(placed, PlacedMarker(row_count + each.row_offset, each.marker))
        row_count += share
    if parts or placed:
        yield _joined(parts, placed)


def _joined(parts: Sequence[pa.RecordBatch], placed: Sequence[PlacedMarker]) -> SealedBatch:
    rows = None
    if parts:
        rows = parts[0] if len(parts) == 1 else pa.concat_batches(parts)
    return SealedBatch(rows, tuple(placed))
