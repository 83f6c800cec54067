"""PartitionBuffer: batches split together give each channel what they would give one by one, in order."""

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.elements import (
    LatencyMarker,
    PlacedMarker,
    StreamMarker,
    Watermark,
    WatermarkStatus,
)
from headrace.core.ids import OperatorId
from headrace.core.record_batch import RecordBatch
from headrace.network.writers.batch_builder import BatchBuilder
from headrace.network.writers.partition_buffer import ChannelShare, PartitionBuffer
from tests.unit.network.exchange import NUMBERS, numbers

Step = list[int] | StreamMarker
"""The channels of a batch's rows, or a marker. One of latency is for the channel that is its subtask index."""

CHANNEL_COUNT = 3
steps = st.lists(
    st.one_of(
        st.lists(st.integers(0, CHANNEL_COUNT - 1), min_size=1, max_size=6),
        st.builds(Watermark, st.integers(0, 5)),
        st.builds(WatermarkStatus, st.booleans()),
        st.builds(
            LatencyMarker,
            st.integers(0, 5),
            st.just(OperatorId(bytes(16))),
            st.integers(0, CHANNEL_COUNT - 1),
        ),
    ),
    max_size=8,
)


def feed(unsplit: PartitionBuffer, each_step: list[Step]) -> None:
    first = 0
    for step in each_step:
        if isinstance(step, list):
            unsplit.append(numbers(first, len(step)), np.array(step, dtype=np.int32))
            first += len(step)
        elif isinstance(step, LatencyMarker):
            unsplit.append_marker(step, step.subtask_index)
        else:
            unsplit.append_marker(step)


def in_order(rows: list[int], markers: tuple[PlacedMarker, ...]) -> list[object]:
    """Rows with the markers between them, of consecutive watermarks the last one."""
    found: list[object] = []
    for offset in range(len(rows) + 1):
        for placed in markers:
            if placed.row_offset == offset:
                found.append(placed.marker)
        found += rows[offset : offset + 1]
    return found


def content(share: ChannelShare) -> list[object]:
    rows = [] if share.rows is None else share.rows.column(0).to_pylist()
    return in_order(rows, share.markers)


def expected(each_step: list[Step], channel: int) -> list[object]:
    found: list[object] = []
    number = 0
    for step in each_step:
        if isinstance(step, list):
            found += [number + place for place, whose in enumerate(step) if whose == channel]
            number += len(step)
        elif isinstance(step, LatencyMarker) and step.subtask_index != channel:
            continue
        elif isinstance(step, Watermark) and found and isinstance(found[-1], Watermark):
            found[-1] = step
        else:
            found.append(step)
    return found


@given(steps)
def test_each_channel_gets_its_rows_and_its_markers_in_the_order_they_came(
    each_step: list[Step],
) -> None:
    unsplit = PartitionBuffer(CHANNEL_COUNT)
    feed(unsplit, each_step)
    shares = {share.channel: content(share) for share in unsplit.split()}
    wanted = {channel: expected(each_step, channel) for channel in range(CHANNEL_COUNT)}
    assert shares == {channel: found for channel, found in wanted.items() if found}
    assert unsplit.is_empty


@given(steps, steps)
def test_shares_of_two_splits_follow_each_other_in_what_waits(
    before: list[Step], behind: list[Step]
) -> None:
    unsplit, pending = PartitionBuffer(CHANNEL_COUNT), BatchBuilder()
    for each_step in (before, behind):
        feed(unsplit, each_step)
        for share in unsplit.split():
            if share.channel == 1:
                pending.append_markers(share.markers)
                if share.rows is not None:
                    assert pending.accepts(share.rows.schema)
                    pending.append(share.rows, share.size_bytes)
    sealed = pending.seal()
    rows = [] if sealed.arrow is None else sealed.arrow.column(0).to_pylist()
    found = in_order(rows, sealed.markers)
    shifted = [*expected(before, 1)]
    for item in expected(behind, 1):
        if isinstance(item, Watermark) and shifted and isinstance(shifted[-1], Watermark):
            shifted[-1] = item
        else:
            shifted.append(item)
    assert found == shifted


def test_it_is_enough_at_256_rows_for_each_channel() -> None:
    unsplit = PartitionBuffer(2)
    unsplit.append(numbers(0, 511), np.zeros(511, dtype=np.int32))
    assert not unsplit.is_enough
    unsplit.append(numbers(511, 1), np.ones(1, dtype=np.int32))
    assert unsplit.is_enough


def test_it_is_enough_at_16_kilobytes_for_each_channel() -> None:
    unsplit = PartitionBuffer(2)
    columns = pa.record_batch([pa.array(["x" * 40_000])], names=["value"])
    unsplit.append(RecordBatch.of_columns(NUMBERS, columns), np.zeros(1, dtype=np.int32))
    assert unsplit.is_enough


def test_rows_with_another_schema_have_to_wait_until_the_others_are_sealed() -> None:
    pending = BatchBuilder()
    plain = numbers(0, 2).to_arrow()
    timed = numbers(0, 2).with_timestamps(np.array([1, 2])).to_arrow()
    assert pending.accepts(plain.schema)
    pending.append(plain, 16.0)
    assert not pending.accepts(timed.schema)
    pending.seal()
    assert pending.accepts(timed.schema)


def test_what_was_split_counts_no_more_towards_the_next_time() -> None:
    unsplit = PartitionBuffer(2, rows_per_channel=1 << 20)
    batch = numbers(0, 1000)
    for _ in range(10):
        assert not unsplit.is_enough
        unsplit.append(batch, (np.arange(1000) % 2).astype(np.int32))
        assert len(list(unsplit.split())) == 2
