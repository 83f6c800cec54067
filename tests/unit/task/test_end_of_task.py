"""EndOfTask: when a subtask whose data has ended may leave."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.task.stream_task import EndOfTask


class World:
    """A subtask with two consumers; `processed` says, for each, that it has worked off everything."""

    def __init__(self, *, takes_checkpoints: bool = True) -> None:
        self.processed: list[Callable[[], None]] = []
        self.wake_count = 0
        partition = SimpleNamespace(on_all_data_processed=self.processed.append)
        writer = SimpleNamespace(partition=partition)
        self.end = EndOfTask(
            cast(Any, [writer, writer]), self._wake, takes_checkpoints=takes_checkpoints
        )

    def _wake(self) -> None:
        self.wake_count += 1


def test_without_checkpoints_a_task_leaves_at_once() -> None:
    world = World(takes_checkpoints=False)
    world.end.begin(waits=False)
    assert world.end.may_leave


def test_a_task_stays_for_its_consumers_and_for_a_checkpoint_behind_its_data() -> None:
    world = World()
    world.end.checkpoint_taken(4)
    world.end.begin(waits=False)
    world.end.checkpoint_completed(4)
    assert not world.end.may_leave, "its last rows are behind this one"
    world.end.checkpoint_taken(5)
    world.end.checkpoint_completed(5)
    world.processed[0]()
    assert not world.end.may_leave
    world.processed[1]()
    assert world.end.may_leave
    assert world.wake_count == 2


def test_any_later_checkpoint_will_do() -> None:
    world = World()
    world.end.begin(waits=False)
    for acknowledge in world.processed:
        acknowledge()
    world.end.checkpoint_taken(5)
    world.end.checkpoint_taken(6)
    world.end.checkpoint_completed(6)
    assert world.end.may_leave


@pytest.mark.parametrize(("completed", "may_leave"), [(7, False), (8, True)])
def test_a_task_that_is_stopped_stays_for_the_savepoint_it_is_stopped_with(
    completed: int, may_leave: bool
) -> None:
    world = World(takes_checkpoints=False)
    world.end.begin(waits=True)
    for acknowledge in world.processed:
        acknowledge()
    world.end.checkpoint_taken(7)
    world.end.wait_for(8)
    world.end.checkpoint_completed(completed)
    assert world.end.may_leave is may_leave


@given(st.permutations(["begin", "taken 1", "taken 2", "completed 1", "completed 2", "a", "b"]))
def test_in_any_order_nobody_leaves_before_what_it_emitted_is_final(steps: list[str]) -> None:
    world, happened = World(), list[str]()
    for step in steps:
        match step.split():
            case ["begin"]:
                world.end.begin(waits=False)
            case ["taken", number]:
                world.end.checkpoint_taken(int(number))
            case ["completed", number]:
                world.end.checkpoint_completed(int(number))
            case _ if len(world.processed) == 2:
                world.processed["ab".index(step)]()
            case _:
                continue  # consumers answer only to the end of the data
        happened.append(step)
        is_final = any(
            f"taken {taken}" in happened
            and f"completed {completed}" in happened
            and happened.index("begin") < happened.index(f"taken {taken}")
            and happened.index(f"taken {taken}") < happened.index(f"completed {completed}")
            for taken, completed in ((1, 1), (1, 2), (2, 2))
            if "begin" in happened
        )
        assert world.end.may_leave <= ({"a", "b"} <= set(happened) and is_final)
