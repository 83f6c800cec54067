"""The laws of barriers, whatever the order in which rows, barriers, cancellations and ends come."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.barriers import (
    AlignmentMode,
    CheckpointBarrier,
    CheckpointOptions,
)
from headrace.core.elements import EndOfPartition
from headrace.task.checkpointing.barriers import (
    CancelMarkerReceived,
    CheckpointAborted,
    ExactlyOnceBarrierHandler,
)
from tests.unit.task.checkpointing.barrier_world import (
    ALIGNED,
    TIMEOUT,
    UNALIGNED,
    Item,
    World,
    barrier,
    rows_before,
    scripts,
)

AT_LEAST_ONCE = CheckpointOptions(alignment=AlignmentMode.AT_LEAST_ONCE)


STEPS = st.lists(
    st.tuples(st.sampled_from(["arrive", "arrive", "take", "take", "fire"]), st.integers(0, 3)),
    max_size=60,
)


def played(
    script: list[list[Item]], steps: list[tuple[str, int]], *, at_least_once: bool = False
) -> World:
    world = World(script, at_least_once=at_least_once)
    for name, index in steps:
        getattr(world, name)(index % len(script))
    world.run_out()
    return world


@given(scripts(), STEPS)
def test_state_and_captured_rows_are_what_came_before_the_barriers(
    script: list[list[Item]], steps: list[tuple[str, int]]
) -> None:
    world = played(script, steps)
    for checkpoint_id, taken in world.taken.items():
        if not taken.is_complete:
            continue
        assert checkpoint_id not in world.declined
        for index, channel in enumerate(script):
            assert taken.processed[index] + taken.captured[index] == rows_before(
                channel, checkpoint_id
            )


@given(scripts(), STEPS, st.lists(st.integers(1, 4)))
def test_no_channel_stays_blocked_and_each_is_resumed_once_per_block(
    script: list[list[Item]], steps: list[tuple[str, int]], aborted: list[int]
) -> None:
    world = played(script, steps)
    for checkpoint_id in aborted:
        world.handle(CheckpointAborted(checkpoint_id))
    if isinstance(world.handler, ExactlyOnceBarrierHandler) and world.handler.is_pending:
        # A barrier was lost for good; the coordinator notices.
        world.handle(CheckpointAborted(world.handler.checkpoint_id))
    world.run_out()
    for channel in world.channels:
        is_waiting = any(isinstance(item, CheckpointBarrier) for _, item in channel.queue)
        assert not channel.is_blocked or is_waiting
        assert channel.resumed_count == channel.blocking_count - channel.is_blocked


@given(scripts(), STEPS, st.booleans())
def test_a_checkpoint_is_taken_or_declined_and_declined_at_most_once(
    script: list[list[Item]], steps: list[tuple[str, int]], one_more: bool
) -> None:
    world = played(script, steps)
    if one_more:
        # Whatever waits for a barrier that was lost makes way for it.
        world.handle(CancelMarkerReceived(0, 9))
    assert len(world.declined) == len(set(world.declined))
    complete = {key for key, taken in world.taken.items() if taken.is_complete}
    assert not complete & set(world.declined)
    assert list(world.taken) == sorted(world.taken)
    assert world.met == sorted(set(world.met))
    pending = {world.newest_id} if world.handler.missing(world.newest_id) else set[int]()
    assert not (one_more and pending)
    assert complete | set(world.declined) == set(world.met) - pending


@given(scripts(), STEPS, st.sampled_from([ALIGNED, TIMEOUT, UNALIGNED]))
def test_where_no_barrier_is_missing_the_last_checkpoint_is_always_taken(
    script: list[list[Item]], steps: list[tuple[str, int]], options: CheckpointOptions
) -> None:
    """Also behind others that lag on some channels, have lost barriers, or were cancelled."""
    last = barrier(9, options)
    whole: list[list[Item]] = [
        [*(item for item in channel if not isinstance(item, EndOfPartition)), last]
        for channel in script
    ]
    world = played(whole, steps)
    assert world.taken[9].is_complete
    assert 9 not in world.declined


@given(scripts(), STEPS)
def test_at_least_once_has_at_least_what_came_before_the_barriers(
    script: list[list[Item]], steps: list[tuple[str, int]]
) -> None:
    unblocked = [[_without_alignment(item) for item in channel] for channel in script]
    world = played(unblocked, steps, at_least_once=True)
    assert list(world.taken) == sorted(world.taken)
    for checkpoint_id, taken in world.taken.items():
        for index, channel in enumerate(unblocked):
            assert set(taken.processed[index]) >= set(rows_before(channel, checkpoint_id)) or not (
                any(getattr(item, "checkpoint_id", 0) == checkpoint_id for item in channel)
            )


def _without_alignment(item: Item) -> Item:
    if not isinstance(item, CheckpointBarrier):
        return item
    return msgspec.structs.replace(item, options=AT_LEAST_ONCE)


@pytest.mark.parametrize("channel_count", [1, 2, 3])
def test_two_checkpoints_in_a_row_need_nothing_from_each_other(channel_count: int) -> None:
    script: list[Item] = [0, barrier(1), 2, barrier(2, UNALIGNED), 4, barrier(3, TIMEOUT), 6]
    world = played([list(script) for _ in range(channel_count)], [])
    assert {key: taken.is_complete for key, taken in world.taken.items()} == {
        1: True,
        2: True,
        3: True,
    }
