"""LocalState: groups get slots where state of their newest attempts is, whatever order slots come in."""

import random

from hypothesis import given
from hypothesis import strategies as st

from headrace.cluster.job_master.slots.slot_pool import LocalState, PhysicalSlot
from headrace.core.ids import (
    AllocationId,
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


def slot(
    task_manager_index: int, profile: ResourceProfile = UNSPECIFIED, host: str = ""
) -> PhysicalSlot:
    allocation = AllocationId(bytes(15) + bytes([task_manager_index]))
    return PhysicalSlot(allocation, task_manager(task_manager_index), 0, profile, host)


def arranged(
    state: LocalState,
    groups: list[list[ExecutionVertexId]],
    slots: list[PhysicalSlot],
    before: list[PhysicalSlot | None] | None = None,
) -> list[int]:
    return state.arrange(groups, slots, before or [None] * len(groups))


def test_without_local_state_each_group_has_the_slot_that_was_meant_for_it() -> None:
    slots = [slot(index) for index in (2, 0, 1)]
    assert arranged(LocalState(), [[subtask(index)] for index in range(3)], slots) == [0, 1, 2]


@given(order=st.permutations(range(6)))
def test_each_subtask_returns_to_its_state_whatever_order_slots_come_in(order: list[int]) -> None:
    state = LocalState()
    for index in random.Random(1).sample(range(6), 6):
        state.register(task_manager(index), [attempt(index)])
    slots = [slot(index) for index in order]
    chosen = arranged(state, [[subtask(index)] for index in range(6)], slots)
    assert [slots[place].resource_id for place in chosen] == [
        task_manager(index) for index in range(6)
    ]


def test_state_of_the_newest_attempt_counts() -> None:
    state = LocalState()
    state.register(task_manager(0), [attempt(0, 7)])
    state.register(task_manager(1), [attempt(0, 8)])
    state.register(task_manager(2), [attempt(0, 6)])
    slots = [slot(index) for index in range(3)]
    assert arranged(state, [[subtask(0)], [subtask(1)], [subtask(2)]], slots) == [1, 0, 2]


def test_the_group_with_most_state_comes_first_and_others_take_what_is_left() -> None:
    state = LocalState()
    state.register(task_manager(0), [attempt(0), attempt(1), attempt(1, vertex=1)])
    groups = [[subtask(0), subtask(0, 1)], [subtask(1), subtask(1, 1)]]
    slots = [slot(index) for index in (0, 1)]
    assert arranged(state, groups, slots) == [1, 0]


def test_slots_of_another_profile_do_not_change_places() -> None:
    state = LocalState()
    state.register(task_manager(0), [attempt(1)])
    slots = [slot(0, BIG), slot(1)]
    assert arranged(state, [[subtask(0)], [subtask(1)]], slots) == [0, 1]


@given(
    held=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5), st.integers(0, 3))),
    slots=st.lists(
        st.builds(
            slot, st.integers(0, 3), st.sampled_from([BIG, UNSPECIFIED]), st.sampled_from("ab")
        ),
        max_size=6,
    ),
    hosts_before=st.lists(st.sampled_from(["a", "b", None]), min_size=6, max_size=6),
)
def test_every_slot_goes_to_one_group_for_whose_profile_it_was_meant(
    held: list[tuple[int, int, int]], slots: list[PhysicalSlot], hosts_before: list[str | None]
) -> None:
    state = LocalState()
    for place, index, number in held:
        state.register(task_manager(place), [attempt(index, number)])
    before = [None if host is None else slot(9, host=host) for host in hosts_before[: len(slots)]]
    chosen = arranged(state, [[subtask(index)] for index in range(len(slots))], slots, before)
    assert sorted(chosen) == list(range(len(slots)))
    assert all(slots[place].profile == slots[number].profile for number, place in enumerate(chosen))


def test_whoever_does_not_find_its_state_stays_on_its_host() -> None:
    state = LocalState()
    state.register(task_manager(3), [attempt(2)])
    before: list[PhysicalSlot | None] = [
        slot(0, host="a"),
        slot(1, host="b"),
        slot(2, host="b"),
        None,
    ]
    # TaskManagers 0 to 2 are lost; of the new ones 3 has the state of the third group.
    slots = [slot(3, host="b"), slot(4, host="c"), slot(5, host="b"), slot(6, host="a")]
    groups = [[subtask(index)] for index in range(4)]
    assert arranged(state, groups, slots, before) == [3, 2, 0, 1]
