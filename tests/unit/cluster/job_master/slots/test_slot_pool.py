"""SlotPool and slot sharing: which slots a job wants, takes, keeps and returns."""

from collections import Counter

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from headrace.cluster.job_master.slots.slot_pool import SlotPool
from headrace.cluster.job_master.slots.slot_sharing import GroupSlots, share_slots
from headrace.core.ids import ResourceId
from headrace.core.resource_profile import ResourceProfile
from headrace.gateways.messages import SlotOffer
from headrace.gateways.resource_manager import ResourceRequirement
from headrace.graph.execution_graph import expand
from headrace.graph.job_graph import JobVertex, PartitionerKind
from tests.unit.cluster.cluster_samples import (
    ANY_PROFILE,
    SLOT_PROFILE,
    TM_1,
    TM_2,
    allocation,
    edge,
    job_graph,
    vertex,
)


def offer(number: int, profile: ResourceProfile = SLOT_PROFILE) -> SlotOffer:
    return SlotOffer(allocation(number), 0, profile)


def new_pool(count: int) -> SlotPool:
    pool = SlotPool()
    pool.require([ANY_PROFILE] * count)
    return pool


def test_requirements_count_equal_profiles_together() -> None:
    pool = SlotPool()
    pool.require([ANY_PROFILE, SLOT_PROFILE, ANY_PROFILE])
    assert pool.requirements == (
        ResourceRequirement(ANY_PROFILE, 2),
        ResourceRequirement(SLOT_PROFILE, 1),
    )


def test_no_more_slots_are_taken_than_are_wanted() -> None:
    pool = new_pool(1)
    assert pool.offer(TM_1, [offer(1), offer(2)], 0) == (allocation(1),)
    assert pool.missing_count == 0


def test_a_slot_that_is_held_is_accepted_again() -> None:
    pool = new_pool(1)
    pool.offer(TM_1, [offer(1)], 0)
    assert pool.offer(TM_1, [offer(1)], 0) == (allocation(1),)
    assert pool.offer(TM_2, [offer(1)], 0) == ()


def test_a_slot_that_is_too_small_is_refused() -> None:
    pool = SlotPool()
    pool.require([ResourceProfile(2.0, 0)])
    assert pool.offer(TM_1, [offer(1)], 0) == ()


def test_slots_are_reserved_all_or_none() -> None:
    pool = new_pool(2)
    pool.offer(TM_1, [offer(1)], 0)
    assert pool.reserve([ANY_PROFILE] * 2) is None
    pool.offer(TM_2, [offer(2)], 0)
    reserved = pool.reserve([ANY_PROFILE] * 2)
    assert reserved is not None
    assert [slot.allocation_id for slot in reserved] == [allocation(1), allocation(2)]


def test_a_reserved_slot_is_not_given_twice_and_a_lost_one_is_not_held() -> None:
    pool = new_pool(2)
    pool.offer(TM_1, [offer(1)], 0)
    assert pool.reserve([ANY_PROFILE]) is not None
    assert pool.reserve([ANY_PROFILE]) is None
    assert pool.holds(allocation(1))
    pool.fail_slot(allocation(1))
    assert not pool.holds(allocation(1))


def test_slots_of_a_lost_task_manager_are_wanted_again() -> None:
    pool = new_pool(2)
    pool.offer(TM_1, [offer(1)], 0)
    pool.offer(TM_2, [offer(2)], 0)
    assert [slot.allocation_id for slot in pool.fail_task_manager(TM_1)] == [allocation(1)]
    assert pool.missing_count == 1
    assert pool.offer(TM_2, [offer(3)], 0) == (allocation(3),)


def test_slots_that_nobody_needs_are_returned_after_a_while() -> None:
    pool = new_pool(2)
    pool.offer(TM_1, [offer(1), offer(2)], 0)
    pool.require([ANY_PROFILE])
    assert pool.take_idle(49, 50) == ()
    assert [slot.allocation_id for slot in pool.take_idle(50, 50)] == [allocation(1)]
    assert len(pool.slots) == 1


def test_reserved_slots_are_never_returned() -> None:
    pool = new_pool(1)
    pool.offer(TM_1, [offer(1)], 0)
    pool.reserve([ANY_PROFILE])
    pool.require([])
    assert pool.take_idle(10**6, 50) == ()


@given(st.lists(st.integers(1, 4), min_size=1, max_size=5), st.lists(st.booleans(), max_size=5))
def test_sharing_needs_the_largest_parallelism_of_each_group_and_never_doubles_a_vertex(
    parallelisms: list[int], other_groups: list[bool]
) -> None:
    groups = [*other_groups, *[False] * 5]
    vertices: list[JobVertex] = [
        vertex(number + 1, parallelism, group="other" if groups[number] else "default")
        for number, parallelism in enumerate(parallelisms)
    ]
    edges = tuple(
        edge(number, number + 1, PartitionerKind.REBALANCE) for number in range(1, len(vertices))
    )
    graph = expand(job_graph(tuple(vertices), edges))
    shared = share_slots(graph)
    assert Counter(each.slot_sharing_group for each in shared) == graph.slots_by_group
    placed = [subtask for slot in shared for subtask in slot.execution_vertices]
    assert len(placed) == len(set(placed)) == sum(parallelisms)
    for slot in shared:
        ids = [subtask.vertex_id for subtask in slot.execution_vertices]
        assert len(ids) == len(set(ids))


def test_a_consumer_runs_beside_the_producer_of_its_index() -> None:
    shared = share_slots(expand(job_graph((vertex(1, 2), vertex(2, 2)), (edge(1, 2),))))
    assert [[s.subtask_index for s in slot.execution_vertices] for slot in shared] == [
        [0, 0],
        [1, 1],
    ]


def test_a_consumer_runs_beside_a_producer_that_it_reads_from() -> None:
    rescaled = job_graph((vertex(1, 4), vertex(2, 2)), (edge(1, 2, PartitionerKind.RESCALE),))
    shared = share_slots(expand(rescaled))
    assert [[s.subtask_index for s in slot.execution_vertices] for slot in shared] == [
        [0, 0],
        [1],
        [2, 1],
        [3],
    ]


SMALL = ResourceProfile(0.25, 1 << 20)


def test_a_slot_that_was_cut_for_a_group_goes_to_that_group() -> None:
    pool = SlotPool()
    pool.require([ANY_PROFILE, SMALL])
    pool.offer(TM_1, [offer(1)], 0)
    assert pool.requirements[1] == ResourceRequirement(SMALL, 1) and pool.missing_count == 1
    assert pool.reserve([ANY_PROFILE, SMALL]) is None
    pool.offer(TM_1, [offer(2, SMALL)], 0)
    reserved = pool.reserve([ANY_PROFILE, SMALL])
    assert reserved is not None
    assert [slot.profile for slot in reserved] == [SLOT_PROFILE, SMALL]


def test_the_groups_of_a_graph_have_the_slots_that_it_says() -> None:
    graph = job_graph((vertex(1, 2), vertex(2, 1, group="small")))
    graph = msgspec.structs.replace(graph, slot_resources={"small": SMALL})
    found = {each.slot_sharing_group: each.profile for each in share_slots(expand(graph))}
    assert found == {"default": ANY_PROFILE, "small": SMALL}


def test_slots_of_a_task_manager_that_is_left_are_wanted_elsewhere() -> None:
    pool = new_pool(2)
    pool.offer(TM_1, [offer(1), offer(2)], 0)
    pool.leave(TM_1)
    assert pool.missing_count == 2
    assert pool.offer(TM_1, [offer(1), offer(3)], 0) == (allocation(1),), "no further one"
    assert pool.offer(TM_2, [offer(4)], 0) == (allocation(4),)
    reserved = pool.reserve([ANY_PROFILE])
    assert reserved is not None and reserved[0].resource_id == TM_2
    assert pool.reserve([ANY_PROFILE]) is None


def test_groups_whose_task_managers_are_lost_stay_on_their_hosts() -> None:
    shared, pool = share_slots(expand(job_graph((vertex(1, 2),)))), new_pool(2)
    groups = GroupSlots(shared, pool)
    subtasks = frozenset(subtask for group in shared for subtask in group.execution_vertices)

    def hosts() -> list[str]:
        slots = groups.reserve(subtasks)
        assert slots is not None
        return [slots[subtask].host for subtask in sorted(subtasks)]

    pool.offer(TM_1, [offer(1)], 0, "a")
    pool.offer(TM_2, [offer(2)], 0, "b")
    before = hosts()
    pool.fail_task_manager(TM_1)
    pool.fail_task_manager(TM_2)
    for number, host in enumerate(reversed(before)):
        pool.offer(ResourceId(f"next-{number}"), [offer(3 + number)], 0, host)
    assert hosts() == before
