"""Extents that lie side by side for several consumers are read together, and by each alone if need be."""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.network.errors import StorageError
from headrace.network.stored.partitioned_file import Extent
from headrace.network.stored.read_scheduler import STRETCH_PARTS_MAX, side_by_side
from headrace.network.stored.spill_files import SpillFile
from headrace.network.stored.stored_view import CoalescedRead, ReadCandidate
from tests.unit.network.faulty_files import FaultyFileLayer

CONTENT = bytes(range(100))


def stored(directory: Path, layer: FaultyFileLayer) -> SpillFile:
    file = SpillFile.create(directory / "file", layer, lambda job: job())
    file.append([CONTENT])
    return file


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 5)), max_size=12), st.integers(1, 12))
def test_those_read_together_follow_each_other_in_the_file(
    gaps: list[tuple[int, int]], limit: int
) -> None:
    candidates: list[ReadCandidate[int]] = []
    at = 0
    for number, (gap, length) in enumerate(gaps):
        at += gap
        candidates.append(ReadCandidate(number, 0, at, length))
        at += length
    groups = side_by_side(candidates, limit)
    assert [each for group in groups for each in group] == candidates
    for group in groups:
        assert len(group) == 1 or sum(each.length for each in group) <= limit
        for before, after in pairwise(group):
            assert before.length and after.length
            assert before.offset + before.length == after.offset
    # Nobody is left alone who could have come with the one before.
    for group, following in pairwise(groups):
        last, first = group[-1], following[0]
        follows = last.length and first.length and last.offset + last.length == first.offset
        assert not follows or sum(each.length for each in [*group, first]) > limit


def test_no_more_are_read_together_than_one_call_takes(tmp_path: Path) -> None:
    layer = FaultyFileLayer()
    file = SpillFile.create(tmp_path / "file", layer, lambda job: job())
    count = 2 * STRETCH_PARTS_MAX + 1
    file.append([bytes(count)])
    candidates = [ReadCandidate(number, 0, number, 1) for number in range(count)]
    groups = side_by_side(candidates, 2 * count)
    assert [each for group in groups for each in group] == candidates
    assert list(map(len, groups)) == [STRETCH_PARTS_MAX, STRETCH_PARTS_MAX, 1]
    for group in groups:
        CoalescedRead([Extent(each.offset, 1) for each in group]).read(file, group[0].offset, 1)
    # Each by the first call: none was refused by the operating system, to be read part by part.
    assert layer.read_offsets == [group[0].offset for group in groups]
    file.let_go()


@pytest.mark.parametrize("are_short", [False, True])
def test_neighbours_are_read_by_one_call_into_memory_of_each_one_s_own(
    tmp_path: Path, are_short: bool
) -> None:
    layer = FaultyFileLayer()
    layer.short_reads = are_short
    file = stored(tmp_path, layer)
    stretch = CoalescedRead([Extent(10, 5), Extent(15, 20), Extent(35, 1)])
    parts = [stretch.read(file, *place) for place in ((10, 5), (15, 20), (35, 1))]
    assert [part.to_pybytes() for part in parts] == [CONTENT[10:15], CONTENT[15:35], CONTENT[35:36]]
    addresses = [part.address for part in parts]
    assert all(address % 64 == 0 for address in addresses) and len(set(addresses)) == 3
    assert are_short or layer.read_offsets == [10]
    file.let_go()


def test_who_wants_something_else_by_then_reads_it_alone(tmp_path: Path) -> None:
    layer = FaultyFileLayer()
    file = stored(tmp_path, layer)
    stretch = CoalescedRead([Extent(10, 5), Extent(15, 20)])
    assert stretch.read(file, 10, 5).to_pybytes() == CONTENT[10:15]
    assert stretch.read(file, 15, 8).to_pybytes() == CONTENT[15:23]
    assert layer.read_offsets == [10, 15]
    file.let_go()


def test_the_bad_sector_of_one_consumer_fails_no_other(tmp_path: Path) -> None:
    layer = FaultyFileLayer()
    file = stored(tmp_path, layer)
    layer.bad_from = 20
    extents: Sequence[tuple[int, int]] = ((10, 5), (15, 20))
    stretch = CoalescedRead([Extent(*extent) for extent in extents])
    assert stretch.read(file, *extents[0]).to_pybytes() == CONTENT[10:15]
    with pytest.raises(StorageError, match="cannot be read"):
        stretch.read(file, *extents[1])
    file.let_go()
