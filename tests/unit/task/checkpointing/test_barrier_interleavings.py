"""Barriers on two channels: every order in which their rows and barriers can arrive and be processed, one by one."""

from collections.abc import Iterator

import pytest

from headrace.core.barriers import CancelCheckpointMarker, CheckpointOptions
from headrace.core.elements import EndOfPartition
from tests.unit.task.checkpointing.barrier_world import (
    ALIGNED,
    TIMEOUT,
    UNALIGNED,
    Item,
    World,
    barrier,
    rows_before,
)

Step = tuple[str, int]


def orders(left: dict[Step, int]) -> Iterator[list[Step]]:
    """Every order of so many steps of each kind; nothing is taken before it arrived."""
    if not any(left.values()):
        yield []
    for step, count in left.items():
        what, index = step
        waits = what == "take" and left[("arrive", index)] >= count
        if count and not waits:
            for following in orders({**left, step: count - 1}):
                yield [step, *following]


def play(script: list[list[Item]], has_timer: bool) -> Iterator[World]:
    """The world as every order leaves it, when everything has happened that can."""
    steps = {(what, index): len(script[index]) for index in (0, 1) for what in ("arrive", "take")}
    for order in orders(steps | ({("fire", 0): 1} if has_timer else {})):
        world = World(script)
        for what, index in order:
            getattr(world, what)(index)
        # What a blocked channel kept back comes now.
        for _ in range(4):
            for index in (0, 1):
                world.arrive(index)
                world.take(index)
        yield world


def assert_lawful(world: World, script: list[list[Item]]) -> None:
    for checkpoint_id, taken in world.taken.items():
        assert taken.is_complete != (checkpoint_id in world.declined)
        if taken.is_complete:
            for index, channel in enumerate(script):
                seen = taken.processed[index] + taken.captured[index]
                assert seen == rows_before(channel, checkpoint_id)
    for index, channel in enumerate(world.channels):
        assert not channel.is_blocked
        assert channel.resumed_count == channel.blocking_count
        # Every row once, in the order of its channel, whatever overtook it.
        assert world.processed[index] == [item for item in script[index] if isinstance(item, int)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "has_timer", "has_rows_behind"),
    [(ALIGNED, False, True), (UNALIGNED, False, True), (TIMEOUT, True, False)],
)
def test_in_every_order_the_checkpoint_has_what_came_before_its_barriers_and_nothing_else(
    options: CheckpointOptions, has_timer: bool, has_rows_behind: bool
) -> None:
    script: list[list[Item]] = [
        [0, barrier(1, options), *([2] if has_rows_behind else [])] for _ in range(2)
    ]
    count = 0
    for world in play(script, has_timer):
        count += 1
        assert list(world.taken) == [1] and world.declined == []
        assert_lawful(world, script)
    assert count > 1000


@pytest.mark.parametrize("end", [CancelCheckpointMarker(1), EndOfPartition()], ids=["gone", "end"])
@pytest.mark.parametrize("options", [ALIGNED, UNALIGNED])
def test_in_every_order_a_channel_without_the_barrier_blocks_nobody_for_good(
    options: CheckpointOptions, end: Item
) -> None:
    script: list[list[Item]] = [[0, barrier(1, options)], [0, end]]
    for world in play(script, has_timer=False):
        if isinstance(end, EndOfPartition):
            # The end of a channel counts as its barrier.
            assert list(world.taken) == [1] and world.declined == []
        else:
            assert world.declined == [1]
        assert_lawful(world, script)
