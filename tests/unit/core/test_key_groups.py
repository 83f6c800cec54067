"""Key groups: golden vectors and laws."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.key_groups import (
    FEW_HASHES,
    default_max_parallelism,
    key_group_of,
    key_group_range,
    key_groups_of,
    mix_hashes,
    subtasks_of,
)

GOLDEN = [  # hash, mixed, group of 128, subtask of 3, subtask of 5, group of 4096
    (0, 593689054, 94, 2, 3, 2526),
    (1, 68075478, 86, 2, 3, 4054),
    (42, 1134849565, 29, 0, 1, 3613),
    (-1, 1982413648, 80, 1, 3, 2896),
    (2147483647, 1653689534, 62, 1, 2, 3262),
    (-807048821, 1892790720, 64, 1, 2, 448),
    (97, 1455541201, 81, 1, 3, 3025),
    (97520992, 1330823394, 98, 2, 3, 226),
]


@pytest.mark.parametrize(("key_hash", "mixed", "group", "of_three", "of_five", "wide"), GOLDEN)
def test_hashes_are_mixed_and_assigned_as_in_flink(
    key_hash: int, mixed: int, group: int, of_three: int, of_five: int, wide: int
) -> None:
    hashes = np.array([key_hash], dtype=np.int32)
    assert mix_hashes(hashes)[0] == mixed
    assert key_groups_of(hashes, 128)[0] == group
    assert subtasks_of(hashes, 3, 128)[0] == of_three
    assert subtasks_of(hashes, 5, 128)[0] == of_five
    assert key_groups_of(hashes, 4096)[0] == wide


@pytest.mark.parametrize(
    ("parallelism", "expected"),
    [(1, 128), (85, 128), (86, 256), (171, 256), (341, 512), (342, 1024), (10924, 32768)],
)
def test_the_default_max_parallelism_is_flinks(parallelism: int, expected: int) -> None:
    assert default_max_parallelism(parallelism) == expected


@given(st.integers(1, 300), st.data())
def test_ranges_tile_all_groups_and_agree_with_the_assignment(
    max_parallelism: int, data: st.DataObject
) -> None:
    parallelism = data.draw(st.integers(1, max_parallelism))
    ranges = [key_group_range(i, parallelism, max_parallelism) for i in range(parallelism)]
    assert [group for one in ranges for group in one] == list(range(max_parallelism))
    for index, groups in enumerate(ranges):
        for group in groups:
            assert group * parallelism // max_parallelism == index


@given(st.lists(st.integers(-(2**31), 2**31 - 1), min_size=1))
def test_mixed_hashes_are_never_negative_and_leave_their_input_alone(values: list[int]) -> None:
    hashes = np.array(values, dtype=np.int32)
    assert (mix_hashes(hashes) >= 0).all()
    assert hashes.tolist() == values


@given(
    st.lists(st.integers(-(2**31), 2**31 - 1), min_size=1, max_size=20),
    st.sampled_from([1, 7, 100, 128, 32768]),
    st.data(),
)
def test_many_hashes_at_once_have_the_groups_and_owners_of_each_alone(
    values: list[int], max_parallelism: int, data: st.DataObject
) -> None:
    parallelism = data.draw(st.integers(1, max_parallelism))
    hashes = np.array(values, dtype=np.int32)
    groups = [key_group_of(value & 0xFFFFFFFF, max_parallelism) for value in values]
    assert key_groups_of(hashes, max_parallelism).tolist() == groups
    many = np.tile(hashes, FEW_HASHES + 1)
    assert key_groups_of(many, max_parallelism).tolist() == groups * (FEW_HASHES + 1)
    owners = subtasks_of(hashes, parallelism, max_parallelism)
    assert owners.tolist() == [group * parallelism // max_parallelism for group in groups]


def test_the_mixed_hash_that_has_no_opposite_counts_as_0() -> None:
    assert mix_hashes(np.array([-2089875627], dtype=np.int32)).tolist() == [0]
    assert key_group_of(2205091669, 128) == 0
