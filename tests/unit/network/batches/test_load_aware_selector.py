"""Load-aware rebalance and rescale: who is next in turn and has least in its queue gets the rows."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.config import Settings
from headrace.core.errors import ConfigurationError
from headrace.core.randomness import SeededRandom
from headrace.graph.job_graph import PartitionerKind, PartitionerSpec
from headrace.network.batches.channel_selectors import (
    ADAPTIVE_PARTITIONER,
    MAX_TRAVERSE_SIZE,
    ChannelSelector,
    LoadAwareSelector,
    RoundRobinSelector,
    create_selector,
)
from headrace.network.partitions.pipelined_partition import PipelinedResultPartition
from tests.unit.network.exchange import numbers
from tests.unit.network.writer_edge import edge


class Queues:
    """What waits for each channel: elements and bytes, as the test says."""

    def __init__(self, *loads: tuple[int, int]) -> None:
        self.loads = list(loads)
        self.asked: list[int] = []

    def load_of(self, channel: int) -> tuple[int, int]:
        self.asked.append(channel)
        return self.loads[channel]


def selector(
    queues: Queues,
    kind: PartitionerKind = PartitionerKind.RESCALE,
    enabled: str = "true",
    **options: str,
) -> ChannelSelector:
    settings = Settings(
        {ADAPTIVE_PARTITIONER.key: enabled}
        | {f"taskmanager.network.adaptive-partitioner.{k.replace('_', '-')}": v for k, v in options.items()}
    )  # fmt: skip
    count = len(queues.loads)
    return create_selector(
        PartitionerSpec(kind), count, 128, SeededRandom(0), settings, queues.load_of
    )


def test_the_first_empty_channel_in_turn_is_taken() -> None:
    queues = Queues((1, 10), (0, 0), (0, 0))
    chosen = selector(queues)
    assert [chosen.select(numbers(0, 1))[0][0] for _ in range(4)] == [1, 2, 1, 2]


def test_without_an_empty_one_the_fewest_elements_count_and_then_the_fewest_bytes() -> None:
    queues = Queues((2, 10), (1, 900), (1, 800), (3, 1))
    chosen = selector(queues)
    assert chosen.select(numbers(0, 300))[0][0] == 2
    queues.loads[2] = (1, 1000)
    assert chosen.select(numbers(0, 300))[0][0] == 1


def test_no_more_channels_are_looked_at_than_the_option_says_and_the_turn_goes_on_from_the_last() -> (
    None
):
    queues = Queues(*[(1, 1)] * 8, (0, 0))
    chosen = selector(queues, max_traverse_size="3")
    assert chosen.select(numbers(0, 1))[0][0] == 0
    assert queues.asked == [0, 1, 2]
    queues.asked.clear()
    queues.loads[2] = (0, 0)
    assert chosen.select(numbers(0, 1))[0][0] == 2
    assert chosen.select(numbers(0, 1))[0][0] == 3
    assert queues.asked == [1, 2, 3, 3, 4, 5]


@pytest.mark.parametrize("kind", [PartitionerKind.REBALANCE, PartitionerKind.RESCALE])
def test_it_is_off_unless_it_is_switched_on_and_somebody_reads_meanwhile(
    kind: PartitionerKind,
) -> None:
    queues = Queues((0, 0), (0, 0))
    assert isinstance(selector(queues, kind), LoadAwareSelector)
    assert isinstance(selector(queues, kind, enabled="false"), RoundRobinSelector)
    on = Settings({ADAPTIVE_PARTITIONER.key: "true"})
    spec, random = PartitionerSpec(kind), SeededRandom(0)
    assert isinstance(create_selector(spec, 2, 128, random, on), RoundRobinSelector)
    assert isinstance(create_selector(spec, 2, 128, random), RoundRobinSelector)
    assert (ADAPTIVE_PARTITIONER.default, MAX_TRAVERSE_SIZE.default) == (False, 4)


def test_to_look_at_nobody_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="max-traverse-size"):
        selector(Queues((0, 0), (0, 0)), max_traverse_size="0")


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=2, max_size=6),
    st.lists(st.integers(1, 300), min_size=1, max_size=5),
    st.integers(1, 8),
)
def test_every_row_goes_to_one_channel_and_columns_and_rows_are_dealt_alike(
    loads: list[tuple[int, int]], sizes: list[int], traverse_max: int
) -> None:
    one, other = (
        selector(Queues(*loads), max_traverse_size=str(traverse_max)) for _ in range(2)
    )  # fmt: skip
    for size in sizes:
        batch = numbers(0, size)
        dealt = {channel: part.rows() for channel, part in one.select(batch)}
        channels = other.channels_of(batch).tolist()
        assert dealt == {
            channel: [row for row, chosen in enumerate(channels) if chosen == channel]
            for channel in set(channels)
        }


@given(st.integers(2, 6), st.integers(1, 50))
def test_with_empty_queues_it_deals_as_strictly_in_turn(count: int, row_count: int) -> None:
    chosen = selector(Queues(*[(0, 0)] * count))
    channels = chosen.channels_of(numbers(0, row_count)).tolist()
    assert channels == [row % count for row in range(row_count)]
    assert max(Counter(channels).values()) <= -(-row_count // count)


def test_the_load_of_a_channel_is_what_waits_in_its_queue() -> None:
    made = edge(channel_count=2, kind=PartitionerKind.RESCALE, timeout_ms=0)
    partition = made.writer.partition
    assert isinstance(partition, PipelinedResultPartition)
    assert [partition.load_of(channel) for channel in (0, 1)] == [(0, 0), (0, 0)]
    made.writer.emit(numbers(0, 1))
    (count, size_bytes), other = (partition.load_of(channel) for channel in (0, 1))
    assert count == 1 and size_bytes == partition.queued_bytes > 0
    assert other == (0, 0)
    made.read(0)
    assert partition.load_of(0) == (0, 0)
