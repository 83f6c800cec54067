"""Regions of a sort-merge partition: which rows and markers go to which subpartition, in which order. Pure.

A region is what fits the partition's memory. Its rows are brought into the order of their subpartitions by one stable
sort of channel numbers, so that within a subpartition they stay in the order of emission.
Source: Flink SortBuffer, DataBuffer.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from headrace.core.elements import PlacedMarker, StreamMarker
from headrace.network.markers import add_marker
from headrace.network.partitioner import Channels, order_by_channel

TAKE_BYTES: Final = 8 << 20
"""Rows are gathered in steps of about this, so that a region need not fit memory twice."""


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


def take_steps(plan: RegionPlan, run: range, row_bytes: float) -> Iterator[range]:
    """Cut a run of subpartitions so that the rows of each part are about TAKE_BYTES, one subpartition at least."""
    begin = run.start
    for channel in run:
        size = (plan.starts[channel + 1] - plan.starts[begin]) * row_bytes
        if size >= TAKE_BYTES or channel == run.stop - 1:
            yield range(begin, channel + 1)
            begin = channel + 1
