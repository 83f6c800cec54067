"""Regions of a sort-merge partition: which rows and markers go to which subpartition, in which order. Pure.

A region is what fits the partition's memory. It is made of runs: some megabytes of rows each, brought into the order
of their subpartitions by one stable sort of channel numbers as soon as they are there, while the processor's caches
still hold them. A subpartition's part of the region is its rows of the first run, then those of the next: within a
subpartition they stay in the order of emission. (One sort of the whole region copies each row twice, and looks for it
all over the memory: a third of the speed.) Source: Flink SortBuffer, DataBuffer.
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
"""Rows are sorted when there are so many ..."""
RUN_BYTES_PER_CHANNEL: Final = 16 << 10
"""... and with many subpartitions enough for each of them, as putting tiny parts together again costs time."""


@dataclass(frozen=True)
class RegionPlan:
    """`order`, shape (num_rows,): numbers of the region's rows by subpartition; that of `c` is in `starts[c:c + 2]`."""

    order: npt.NDArray[np.intp]
    starts: npt.NDArray[np.intp]

    def rows_of(self, channel: int) -> npt.NDArray[np.intp]:
        """Numbers of the rows of one subpartition, ascending."""
        return self.order[self.starts[channel] : self.starts[channel + 1]]

    def markers_of(
        self, channel: int, markers: Sequence[tuple[int, StreamMarker]]
    ) -> tuple[PlacedMarker, ...]:
        """Place markers, each with the number of the row it stood before, among the rows of one subpartition.

        Of watermarks with no row of this subpartition between them the last one counts.
        """
        rows = self.rows_of(channel)
        placed: list[PlacedMarker] = []
        for row_number, marker in markers:
            add_marker(placed, PlacedMarker(int(np.searchsorted(rows, row_number)), marker))
        return tuple(placed)


def plan_region(channels: Channels, channel_count: int) -> RegionPlan:
    """Return the order of rows whose subpartitions are `channels`, shape (num_rows,)."""
    order, counts = order_by_channel(channels, channel_count)
    starts = np.zeros(channel_count + 1, dtype=np.intp)
    np.cumsum(counts, out=starts[1:])
    return RegionPlan(order, starts)


def rotated(channel_count: int, first: int) -> list[range]:
    """Subpartitions in the order in which a region stores them, as runs: from `first` on, then those before it.

    Producers begin with different ones, so that not all consumers begin at the same end of all files.
    """
    first %= channel_count
    return [run for run in (range(first, channel_count), range(first)) if run]


@dataclass(frozen=True)
class SortedRun:
    """`rows` in the order of `plan`; None where there are only markers, each with the row it stands before."""

    rows: pa.RecordBatch | None
    row_bytes: float
    starts: list[int]
    """The plan's starts, as numbers that Python need not unpack each time."""
    plan: RegionPlan
    markers: Sequence[tuple[int, StreamMarker]]


def run_bytes(channel_count: int, region_bytes: int) -> int:
    """Return how much is sorted at once, a quarter of a region at most."""
    wanted = max(RUN_BYTES, RUN_BYTES_PER_CHANNEL * channel_count)
    return max(1, min(wanted, region_bytes // 4))


def sort_run(
    batches: Sequence[pa.RecordBatch],
    channels: Sequence[Channels],
    channel_count: int,
    markers: Sequence[tuple[int, StreamMarker]],
) -> SortedRun:
    """Bring rows of one schema, with the subpartition of each, into order."""
    plan = plan_region(np.concatenate([np.zeros(0, dtype=np.int32), *channels]), channel_count)
    starts = plan.starts.tolist()
    if not batches:
        return SortedRun(None, 0.0, starts, plan, markers)
    rows = batches[0] if len(batches) == 1 else pa.concat_batches(batches)
    is_sorted = int(plan.starts[-1]) in np.diff(plan.starts)
    if not is_sorted:
        rows = in_order(rows, plan.order)
    if not markers:
        # Only they ask for it, and it may be as large as the rows.
        plan = RegionPlan(plan.order[:0], plan.starts)
    return SortedRun(rows, rows.nbytes / max(1, rows.num_rows), starts, plan, markers)


def batches_of(runs: Sequence[SortedRun], channel: int, batch_bytes: int) -> Iterator[SealedBatch]:
    """Yield the rows and markers of one subpartition; small parts as one batch of up to about `batch_bytes`."""
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
