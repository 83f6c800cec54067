"""Partitioners: which row goes where, and in which order."""

import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import cloudpickle
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.config import Settings
from headrace.core.key_groups import key_group_range, key_groups_of, subtasks_of
from headrace.core.key_hash import hash_keys
from headrace.core.randomness import SeededRandom
from headrace.core.record_batch import RecordBatch
from headrace.core.types.type_info import Types
from headrace.graph.job_graph import PartitionerKind, PartitionerSpec
from headrace.network.batches.channel_selectors import ChannelSelector, create_selector
from headrace.network.errors import InvalidChannelError
from tests.unit.network.exchange import NUMBERS, numbers

KEYS = ["a", "ä", "zebra", ""]


def selector(
    kind: PartitionerKind, channel_count: int, payload: bytes = b"", seed: int = 0, **settings: str
) -> ChannelSelector:
    options = {
        f"headrace.network.{key.replace('_', '-')}": value for key, value in settings.items()
    }
    spec = PartitionerSpec(kind, payload)
    return create_selector(spec, channel_count, 128, SeededRandom(seed), Settings(options))


def rows_by_channel(chosen: ChannelSelector, *batches: RecordBatch) -> dict[int, list[Any]]:
    rows: dict[int, list[Any]] = {}
    for batch in batches:
        for channel, part in chosen.select(batch):
            rows.setdefault(channel, []).extend(part.rows())
    return rows


def keyed(hashes: list[int]) -> RecordBatch:
    array = np.array(hashes, dtype=np.int32)
    return numbers(0, len(hashes)).with_keys(Types.INT(), array, keys=hashes)


@pytest.mark.parametrize("kind", [PartitionerKind.FORWARD, PartitionerKind.GLOBAL])
def test_forward_and_global_use_channel_0(kind: PartitionerKind) -> None:
    count = 1 if kind is PartitionerKind.FORWARD else 4
    assert rows_by_channel(selector(kind, count), numbers(0, 5)) == {0: [0, 1, 2, 3, 4]}


def test_rescale_starts_at_channel_0_and_deals_in_turn() -> None:
    chosen = selector(PartitionerKind.RESCALE, 3)
    assert rows_by_channel(chosen, numbers(0, 4), numbers(4, 3)) == {
        0: [0, 3, 6],
        1: [1, 4],
        2: [2, 5],
    }


@given(st.lists(st.integers(1, 40), max_size=20), st.integers(1, 7), st.integers(0, 50))
def test_rebalance_gives_every_channel_its_share(sizes: list[int], count: int, seed: int) -> None:
    chosen = selector(PartitionerKind.REBALANCE, count, seed=seed)
    rows = rows_by_channel(
        chosen, *(numbers(1000 * index, size) for index, size in enumerate(sizes))
    )
    shares = [len(rows.get(channel, [])) for channel in range(count)]
    assert sum(shares) == sum(sizes)
    assert max(shares) - min(shares) <= 1
    assert all(values == sorted(values) for values in rows.values())


def test_rebalance_starts_behind_a_random_channel() -> None:
    firsts = {
        selector(PartitionerKind.REBALANCE, 4, seed=seed).select(numbers(0, 1))[0][0]
        for seed in range(30)
    }
    assert firsts == {0, 1, 2, 3}


def test_large_batches_are_dealt_whole() -> None:
    chosen = selector(PartitionerKind.RESCALE, 3)
    sizes = [
        [(channel, part.num_rows) for channel, part in chosen.select(numbers(0, 256))]
        for _ in range(4)
    ]
    assert sizes == [[(0, 256)], [(1, 256)], [(2, 256)], [(0, 256)]]


def test_strict_round_robin_is_an_option() -> None:
    chosen = selector(PartitionerKind.RESCALE, 2, rebalance_whole_batch_rows="0")
    assert [part.num_rows for _, part in chosen.select(numbers(0, 1000))] == [500, 500]


def test_shuffle_reaches_every_channel_and_repeats_with_its_seed() -> None:
    first, second = (selector(PartitionerKind.SHUFFLE, 4, seed=5) for _ in range(2))
    rows = rows_by_channel(first, numbers(0, 200))
    assert sorted(rows) == [0, 1, 2, 3]
    assert rows == rows_by_channel(second, numbers(0, 200))


def test_a_broadcast_selects_nothing() -> None:
    chosen = selector(PartitionerKind.BROADCAST, 4)
    assert chosen.is_broadcast
    with pytest.raises(AssertionError):
        chosen.select(numbers(0, 1))


@given(st.lists(st.integers(-(2**31), 2**31 - 1), min_size=1, max_size=300), st.integers(1, 9))
def test_a_key_goes_to_the_owner_of_its_group(hashes: list[int], count: int) -> None:
    batch = keyed(hashes)
    groups = key_groups_of(np.array(hashes, dtype=np.int32), 128)
    seen: list[int] = []
    for channel, part in selector(PartitionerKind.HASH, count).select(batch):
        rows = list(part.rows())
        assert rows == sorted(rows)
        assert all(groups[row] in key_group_range(channel, count, 128) for row in rows)
        seen += rows
    assert sorted(seen) == list(range(len(hashes)))


def test_processes_with_other_hash_seeds_agree_on_channels() -> None:
    program = (
        "import numpy as np; from headrace.core.key_hash import hash_keys;"
        "from headrace.core.key_groups import subtasks_of;"
        f"print(subtasks_of(hash_keys({KEYS!r}), 7, 128).tolist())"
    )
    answer = subprocess.run(
        [sys.executable, "-c", program],
        env={"PYTHONHASHSEED": "7"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert json.loads(answer) == subtasks_of(hash_keys(KEYS), 7, 128).tolist()


def custom(partitioner: Callable[[Any, int], Any]) -> bytes:
    return cloudpickle.dumps((partitioner, lambda row: row * 10))


def test_a_custom_partitioner_is_asked_with_the_key() -> None:
    chosen = selector(PartitionerKind.CUSTOM, 3, custom(lambda key, count: key // 10 % count))
    assert rows_by_channel(chosen, numbers(0, 7)) == {0: [0, 3, 6], 1: [1, 4], 2: [2, 5]}


@pytest.mark.parametrize("answer", [3, -1, "x", None, 1.0])
def test_an_answer_that_is_no_channel_is_an_error_with_the_key(answer: object) -> None:
    chosen = selector(PartitionerKind.CUSTOM, 3, custom(lambda key, count: answer))
    with pytest.raises(InvalidChannelError, match="for the key 50") as caught:
        chosen.select(numbers(5, 1))
    assert caught.value.returned == answer


def test_rows_and_columns_are_dealt_alike() -> None:
    hashes = np.arange(50, dtype=np.int32) * 7919
    columns = numbers(0, 50)
    rows = RecordBatch.of_rows(NUMBERS, list(columns.rows()))
    chosen = selector(PartitionerKind.HASH, 4)
    assert rows_by_channel(
        chosen, columns.with_keys(Types.INT(), hashes, keys=list(range(50)))
    ) == rows_by_channel(chosen, rows.with_keys(Types.INT(), hashes, keys=list(range(50))))


@pytest.mark.parametrize("kind", [kind for kind in PartitionerKind if kind.value != "BROADCAST"])
@given(sizes=st.lists(st.integers(1, 600), min_size=1, max_size=8), count=st.integers(1, 9))
def test_channels_of_names_for_each_row_the_channel_to_which_select_gives_it(
    kind: PartitionerKind, sizes: list[int], count: int
) -> None:
    payload = cloudpickle.dumps((lambda key, n: key % n, lambda row: row))
    one, other = selector(kind, count, payload), selector(kind, count, payload)
    for size in sizes:
        batch = RecordBatch.of_rows(NUMBERS, list(range(size))).with_keys(
            Types.LONG(), np.arange(size, dtype=np.int32) * 7919, keys=list(range(size))
        )
        channels = other.channels_of(batch).tolist()
        for channel, rows in one.select(batch):
            assert list(rows.rows()) == [row for row in range(size) if channels[row] == channel]
