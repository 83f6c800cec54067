"""Distribution of data in flight when a job is restored with another parallelism."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.checkpoint.errors import MetadataError
from headrace.checkpoint.handles import (
    NO_FILE,
    ChannelPart,
    ChannelRole,
    ReceiverMapping,
    StateChunk,
    StateTable,
    concerns_subtask,
)
from headrace.core.key_groups import key_group_range

PARALLELISM = st.integers(1, 16)


def part(
    role: ChannelRole, mapping: ReceiverMapping, number: int, count: int, max_parallelism: int = 128
) -> ChannelPart:
    is_input = role is ChannelRole.INPUT
    return ChannelPart(
        role,
        "ab" * 16,
        sender=0 if is_input else number,
        receiver=number if is_input else 0,
        sender_count=1 if is_input else count,
        receiver_count=count if is_input else 1,
        max_parallelism=max_parallelism,
        mapping=mapping,
    )


def test_a_chunk_says_of_itself_what_is_needed_to_place_it() -> None:
    made = part(ChannelRole.INPUT, ReceiverMapping.ROUND_ROBIN, 3, 4)
    chunk = StateChunk(StateTable.CHANNELS, "in flight", 1, NO_FILE, None, made.attributes())
    assert all(isinstance(value, str) for value in chunk.attributes.values())
    assert ChannelPart.of(chunk) == made
    assert concerns_subtask(chunk, 1, 2) and not concerns_subtask(chunk, 0, 2)


def test_a_chunk_that_cannot_be_placed_is_an_error() -> None:
    with pytest.raises(MetadataError, match="cannot be assigned to a channel"):
        concerns_subtask(StateChunk(StateTable.CHANNELS, "", 1, NO_FILE), 0, 1)
    assert not concerns_subtask(StateChunk(StateTable.KEYED, "", 1, NO_FILE), 0, 1)


@given(PARALLELISM, PARALLELISM, st.sampled_from(ReceiverMapping))
def test_what_a_receiver_had_goes_to_one_subtask_or_to_those_that_own_its_key_groups(
    old: int, new: int, mapping: ReceiverMapping
) -> None:
    for number in range(old):
        made = part(ChannelRole.INPUT, mapping, number, old)
        found = [index for index in range(new) if made.concerns(index, new)]
        if mapping is ReceiverMapping.RANGE:
            groups = set(key_group_range(number, old, 128))
            owners = [i for i in range(new) if groups & set(key_group_range(i, new, 128))]
            assert found == owners
        else:
            assert len(found) == 1
        if old == new:
            assert found == [number]


@given(PARALLELISM, PARALLELISM)
def test_what_a_sender_had_goes_to_one_sender(old: int, new: int) -> None:
    for number in range(old):
        made = part(ChannelRole.OUTPUT, ReceiverMapping.RANGE, number, old)
        assert [i for i in range(new) if made.concerns(i, new)] == [number % new]
