"""LocalState: groups get slots where state of their newest attempts is, whatever order slots come in."""

import random

from hypothesis import given
from hypothesis import strategies as st

from headrace.cluster.job_master.slots.slot_pool import LocalState
from headrace.core.ids import (
    ExecutionAttemptId,
    ExecutionVertexId,
    JobId,
    JobVertexId,
    ResourceId,
)
from headrace.core.resource_profile import UNSPECIFIED, ResourceProfile

VERTICES = JobVertexId(b"a" * 16), JobVertexId(b"b" * 16)
BIG = ResourceProfile(2.0)


def subtask(index: int, vertex: int = 0) -> ExecutionVertexId:
    return ExecutionVertexId(VERTICES[vertex], index)


def attempt(index: int, number: int = 1, vertex: int = 0) -> ExecutionAttemptId:
    return ExecutionAttemptId(JobId(b"j" * 16), subtask(index, vertex), number)


def task_manager(index: int) -> ResourceId:
    return ResourceId(f"tm-{index}")


def test_without_local_state_each_group_has_the_slot_that_was_meant_for_it() -> None:
    slots = [(task_manager(index), UNSPECIFIED) for index in (2, 0, 1)]
    assert LocalState().arrange([[subtask(index)] for index in range(3)], slots) == [0, 1, 2]


@given(order=st.permutations(range(6)))
def test_each_subtask_returns_to_its_state_whatever_order_slots_come_in(order: list[int]) -> None:
    state = LocalState()
    for index in random.Random(1).sample(range(6), 6):
        state.register(task_manager(index), [attempt(index)])
    slots = [(task_manager(index), UNSPECIFIED) for index in order]
    chosen = state.arrange([[subtask(index)] for index in range(6)], slots)
    assert [slots[place][0] for place in chosen] == [task_manager(index) for index in range(6)]


def test_state_of_the_newest_attempt_counts() -> None:
    state = LocalState()
    state.register(task_manager(0), [attempt(0, 7)])
    state.register(task_manager(1), [attempt(0, 8)])
    state.register(task_manager(2), [attempt(0, 6)])
    slots = [(task_manager(index), UNSPECIFIED) for index in range(3)]
    assert state.arrange([[subtask(0)], [subtask(1)], [subtask(2)]], slots) == [1, 0, 2]


def test_the_group_with_most_state_comes_first_and_others_take_what_is_left() -> None:
    state = LocalState()
    state.register(task_manager(0), [attempt(0), attempt(1), attempt(1, vertex=1)])
    groups = [[subtask(0), subtask(0, 1)], [subtask(1), subtask(1, 1)]]
    slots = [(task_manager(index), UNSPECIFIED) for index in (0, 1)]
    assert state.arrange(groups, slots) == [1, 0]


def test_slots_of_another_profile_do_not_change_places() -> None:
    state = LocalState()
    state.register(task_manager(0), [attempt(1)])
    slots = [(task_manager(0), BIG), (task_manager(1), UNSPECIFIED)]
    assert state.arrange([[subtask(0)], [subtask(1)]], slots) == [0, 1]


@given(
    held=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5), st.integers(0, 3))),
    slots=st.lists(
        st.tuples(st.integers(0, 3).map(task_manager), st.sampled_from([BIG, UNSPECIFIED])),
        max_size=6,
    ),
)
def test_every_slot_goes_to_one_group_for_whose_profile_it_was_meant(
    held: list[tuple[int, int, int]], slots: list[tuple[ResourceId, ResourceProfile]]
) -> None:
    state = LocalState()
    for place, index, number in held:
        state.register(task_manager(place), [attempt(index, number)])
    chosen = state.arrange([[subtask(index)] for index in range(len(slots))], slots)
    assert sorted(chosen) == list(range(len(slots)))
    assert all(slots[place][1] == slots[number][1] for number, place in enumerate(chosen))
