"""SlotMatching: events in, allocations out."""

import itertools
from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from headrace.cluster.resource_manager.slot_matching import (
    AllocateSlot,
    AllocationAnswered,
    MissingSlots,
    RequirementsDeclared,
    SlotFreed,
    SlotMatching,
    SlotsReported,
    TaskManagerAdded,
    TaskManagerDecommissioned,
    TaskManagerRemoved,
)
from headrace.core.ids import JobId, ResourceId, SlotId
from headrace.core.resource_profile import ResourceProfile
from headrace.gateways.messages import SlotStatus
from headrace.gateways.resource_manager import ResourceRequirement
from tests.unit.cluster.cluster_samples import (
    ANY_PROFILE,
    JOB,
    OTHER_JOB,
    SLOT_PROFILE,
    TM_1,
    TM_2,
    allocation,
    empty_slots,
)


def new_matching() -> SlotMatching:
    numbers = itertools.count(1)
    return SlotMatching(lambda: allocation(next(numbers)))


def need(
    count: int, job: JobId = JOB, profile: ResourceProfile = ANY_PROFILE
) -> RequirementsDeclared:
    requirements = (ResourceRequirement(profile, count),) if count else ()
    return RequirementsDeclared(job, requirements)


def slot_counts(matching: SlotMatching, resource_id: ResourceId) -> tuple[int, int]:
    """Number of slots and of free slots of a TaskManager."""
    slots = matching.slots_of(resource_id)
    return len(slots), sum(slot.allocation_id is None for slot in slots)


def acquired_count(
    matching: SlotMatching, resource_ids: Iterable[ResourceId], job_id: JobId
) -> int:
    """Slots that a job has or is about to get."""
    slots = itertools.chain.from_iterable(map(matching.slots_of, resource_ids))
    return sum(slot.job_id == job_id for slot in slots)


def test_a_declared_need_takes_free_slots_in_order_of_arrival() -> None:
    matching = new_matching()
    matching.handle(TaskManagerAdded(TM_1, empty_slots(TM_1, 1)))
    matching.handle(TaskManagerAdded(TM_2, empty_slots(TM_2, 2)))
    assert matching.handle(need(2)) == [
        AllocateSlot(TM_1, 0, JOB, allocation(1), ANY_PROFILE),
        AllocateSlot(TM_2, 0, JOB, allocation(2), ANY_PROFILE),
    ]
    assert matching.missing() == []


def test_spread_out_slots_are_taken_where_the_least_is_used() -> None:
    numbers = itertools.count(1)
    matching = SlotMatching(lambda: allocation(next(numbers)), are_spread_out=True)
    matching.handle(TaskManagerAdded(TM_1, empty_slots(TM_1, 2)))
    matching.handle(TaskManagerAdded(TM_2, empty_slots(TM_2, 4)))
    taken = [(one.resource_id, one.slot_index) for one in matching.handle(need(5))]
    assert taken == [(TM_1, 0), (TM_2, 0), (TM_2, 1), (TM_1, 1), (TM_2, 2)]


def test_a_blocked_task_manager_serves_only_what_no_other_one_can() -> None:
    numbers = itertools.count(1)
    matching = SlotMatching(lambda: allocation(next(numbers)), is_blocked=lambda one: one == TM_1)
    matching.handle(TaskManagerAdded(TM_1, empty_slots(TM_1, 2)))
    matching.handle(TaskManagerAdded(TM_2, empty_slots(TM_2, 1)))
    taken = [(one.resource_id, one.slot_index) for one in matching.handle(need(2))]
    assert taken == [(TM_2, 0), (TM_1, 0)]
    assert matching.missing() == []


def test_a_job_that_cannot_have_all_its_slots_takes_none_and_a_narrower_one_behind_it_does() -> (
    None
):
    numbers = itertools.count(1)
    matching = SlotMatching(
        lambda: allocation(next(numbers)), capacity=lambda: 3, slots_per_worker=3
    )
    matching.handle(TaskManagerAdded(TM_1, empty_slots(TM_1, 3)))
    assert len(matching.handle(need(1))) == 1
    assert matching.handle(need(3, OTHER_JOB)) == []
    assert matching.missing() == [MissingSlots(OTHER_JOB, ANY_PROFILE, 3, 3, is_held_back=True)]
    third = JobId(b"3" * 16)
    assert len(matching.handle(need(2, third))) == 2
    matching.handle(need(0))
    matching.handle(SlotFreed(TM_1, allocation(1)))
    assert matching.handle(need(0, third)) == []
    assert matching.handle(SlotFreed(TM_1, allocation(2))) == []
    assert len(matching.handle(SlotFreed(TM_1, allocation(3)))) == 3
    assert matching.missing() == []


def test_a_task_manager_with_more_slots_than_the_settings_say_makes_room_for_them() -> None:
    numbers = itertools.count(1)
    matching = SlotMatching(lambda: allocation(next(numbers)), capacity=lambda: 1)
    assert matching.handle(need(3)) == []
    assert len(matching.handle(TaskManagerAdded(TM_1, empty_slots(TM_1, 3)))) == 3


def test_who_is_admitted_is_decided_once_per_event() -> None:
    numbers, decisions = itertools.count(1), itertools.count()
    matching = SlotMatching(
        lambda: allocation(next(numbers)),
        capacity=lambda: 2 + 0 * next(decisions),
        slots_per_worker=2,
    )
    matching.handle(TaskManagerAdded(TM_1, empty_slots(TM_1, 2)))
    matching.handle(need(3))
    assert matching.missing() == [MissingSlots(JOB, ANY_PROFILE, 3, 3, is_held_back=True)]
    assert matching.awaited_slots() == {TM_1: 2}
    assert next(decisions) == 2


def test_of_exclusive_task_managers_whole_ones_count() -> None:
    numbers = itertools.count(1)
    matching = SlotMatching(
        lambda: allocation(next(numbers)),
        is_exclusive=True,
        capacity=lambda: 4,
        slots_per_worker=2,
    )
    matching.handle(TaskManagerAdded(TM_1, empty_slots(TM_1, 2)))
    matching.handle(TaskManagerAdded(TM_2, empty_slots(TM_2, 2)))
    assert len(matching.handle(need(1))) == 1
    assert matching.handle(need(3, OTHER_JOB)) == []
    assert matching.awaited_slots() == {TM_2: 2}, "the other one is of a job that runs"
    assert len(matching.handle(need(2, JobId(b"3" * 16)))) == 2
    assert matching.awaited_slots() == {}


def test_what_no_slot_serves_is_missing_until_a_task_manager_comes() -> None:
    matching = new_matching()
    assert matching.handle(need(2)) == []
    assert matching.missing() == [MissingSlots(JOB, ANY_PROFILE, 2, 2)]
    assert len(matching.handle(TaskManagerAdded(TM_1, empty_slots(TM_1, 3)))) == 2
    assert matching.missing() == []


def test_a_refused_request_is_matched_again() -> None:
    matching = new_matching()
    matching.handle(TaskManagerAdded(TM_1, empty_slots(TM_1, 1)))
    matching.handle(need(1))
    again = matching.handle(AllocationAnswered(TM_1, allocation(1), is_accepted=False))
    assert again == [AllocateSlot(TM_1, 0, JOB, allocation(2), ANY_PROFILE)]


def test_a_report_does_not_free_a_slot_whose_request_is_under_way() -> None:
    matching = new_matching()
    matching.handle(TaskManagerAdded(TM_1, empty_slots(TM_1, 1)))
    matching.handle(need(1))
    assert matching.handle(SlotsReported(TM_1, empty_slots(TM_1, 1))) == []
    assert slot_counts(matching, TM_1) == (1, 0)


def test_an_allocated_slot_that_is_reported_empty_is_given_again() -> None:
    matching = new_matching()
    matching.handle(TaskManagerAdded(TM_1, empty_slots(TM_1, 1)))
    matching.handle(need(1))
    matching.handle(AllocationAnswered(TM_1, allocation(1), is_accepted=True))
    again = matching.handle(SlotsReported(TM_1, empty_slots(TM_1, 1)))
    assert again == [AllocateSlot(TM_1, 0, JOB, allocation(2), ANY_PROFILE)]


def test_a_registering_task_manager_keeps_the_slots_it_reports() -> None:
    matching = new_matching()
    held = SlotStatus(SlotId(TM_1, 0), SLOT_PROFILE, JOB, allocation(9))
    matching.handle(TaskManagerAdded(TM_1, (held,)))
    assert matching.handle(need(1)) == []
    assert matching.missing() == []
    assert matching.jobs_on(TM_1) == [JOB]


def test_a_lost_task_manager_leaves_its_slots_missing() -> None:
    matching = new_matching()
    matching.handle(TaskManagerAdded(TM_1, empty_slots(TM_1, 1)))
    matching.handle(need(1))
    matching.handle(TaskManagerRemoved(TM_1))
    assert matching.missing() == [MissingSlots(JOB, ANY_PROFILE, 1, 1)]


def test_a_new_declaration_replaces_the_old_one() -> None:
    matching = new_matching()
    matching.handle(need(3))
    matching.handle(need(1))
    assert matching.missing() == [MissingSlots(JOB, ANY_PROFILE, 1, 1)]
    matching.handle(need(0))
    assert matching.missing() == []


def test_a_freed_slot_goes_to_the_job_that_waits() -> None:
    matching = new_matching()
    matching.handle(TaskManagerAdded(TM_1, empty_slots(TM_1, 1)))
    matching.handle(need(1))
    matching.handle(AllocationAnswered(TM_1, allocation(1), is_accepted=True))
    matching.handle(need(1, OTHER_JOB))
    matching.handle(need(0))
    assert matching.handle(SlotFreed(TM_1, allocation(1))) == [
        AllocateSlot(TM_1, 0, OTHER_JOB, allocation(2), ANY_PROFILE)
    ]


def test_a_task_manager_is_idle_while_nobody_has_a_slot_of_it() -> None:
    matching = new_matching()
    matching.handle(TaskManagerAdded(TM_1, empty_slots(TM_1, 2)))
    assert matching.idle_task_managers() == [TM_1]
    matching.handle(need(1))
    assert matching.idle_task_managers() == []


def test_a_slot_that_is_too_small_serves_nobody() -> None:
    matching = new_matching()
    matching.handle(TaskManagerAdded(TM_1, empty_slots(TM_1, 1)))
    assert matching.handle(need(1, profile=ResourceProfile(2.0, 0))) == []


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("need"), st.sampled_from([JOB, OTHER_JOB]), st.integers(0, 4)),
            st.tuples(st.just("add"), st.integers(0, 2), st.integers(1, 3)),
            st.tuples(st.just("lose"), st.integers(0, 2), st.just(0)),
            st.tuples(st.just("answer"), st.booleans(), st.just(0)),
        ),
        max_size=30,
    )
)
def test_a_slot_has_one_owner_and_nobody_gets_more_than_is_declared(steps: list[tuple]) -> None:
    matching = new_matching()
    pending: list[AllocateSlot] = []
    needed = {JOB: 0, OTHER_JOB: 0}
    slots: dict[ResourceId, int] = {}
    for step in steps:
        match step:
            case ("need", job, count):
                # Fewer than are held would need the JobMaster to give slots back.
                needed[job] = max(count, acquired_count(matching, slots, job))
                pending += matching.handle(need(needed[job], job))
            case ("add", number, count):
                resource_id = ResourceId(f"tm-{number}")
                if resource_id not in slots:
                    slots[resource_id] = count
                    pending += matching.handle(
                        TaskManagerAdded(resource_id, empty_slots(resource_id, count))
                    )
            case ("lose", number, _):
                resource_id = ResourceId(f"tm-{number}")
                slots.pop(resource_id, None)
                pending += matching.handle(TaskManagerRemoved(resource_id))
            case ("answer", is_accepted, _) if pending:
                action = pending.pop(0)
                pending += matching.handle(
                    AllocationAnswered(action.resource_id, action.allocation_id, is_accepted)
                )
        for job, count in needed.items():
            assert acquired_count(matching, slots, job) <= count
        free = sum(slot_counts(matching, resource_id)[1] for resource_id in slots)
        missing = sum(entry.missing_count for entry in matching.missing())
        assert free == 0 or missing == 0, "a free slot stood beside a job that wanted one"
        acquired = sum(acquired_count(matching, slots, job) for job in needed)
        assert acquired + free == sum(slots.values())


HALF = ResourceProfile(0.5, 256 << 20)


def test_slots_are_cut_from_what_a_task_manager_has_left() -> None:
    matching = new_matching()
    matching.handle(TaskManagerAdded(TM_1, empty_slots(TM_1, 2)))
    # Two cores: three halves are cut beside the slots that are always there, and leave room for none of those.
    cut = matching.handle(need(3, profile=HALF))
    assert [(one.slot_index, one.profile) for one in cut] == [(2, HALF), (3, HALF), (4, HALF)]
    assert matching.free_of(TM_1) == ResourceProfile(0.5, (2 << 30) - 3 * (256 << 20))
    assert slot_counts(matching, TM_1) == (3, 0)
    assert matching.handle(need(1, OTHER_JOB)) == []
    assert matching.missing() == [MissingSlots(OTHER_JOB, ANY_PROFILE, 1, 1)]
    # A cut slot is gone when it is freed, and what it took is there for others.
    matching.handle(need(2, profile=HALF))
    matching.handle(AllocationAnswered(TM_1, cut[0].allocation_id, is_accepted=True))
    [other] = matching.handle(SlotFreed(TM_1, cut[0].allocation_id))
    assert (other.job_id, other.slot_index, other.profile) == (OTHER_JOB, 0, ANY_PROFILE)


def test_a_cut_slot_that_was_refused_or_is_not_reported_any_more_is_gone() -> None:
    matching = new_matching()
    matching.handle(TaskManagerAdded(TM_1, empty_slots(TM_1, 1)))
    [first, second] = matching.handle(need(2, profile=HALF))
    matching.handle(need(0))
    matching.handle(AllocationAnswered(TM_1, first.allocation_id, is_accepted=False))
    matching.handle(AllocationAnswered(TM_1, second.allocation_id, is_accepted=True))
    assert [slot.slot_id.slot_index for slot in matching.slots_of(TM_1)] == [2]
    matching.handle(SlotsReported(TM_1, empty_slots(TM_1, 1)))
    assert matching.free_of(TM_1) == matching.total_of(TM_1) == SLOT_PROFILE
    assert matching.idle_task_managers() == [TM_1]


def test_where_slots_are_not_cut_a_request_has_one_that_is_large_enough() -> None:
    matching = new_matching()
    matching.are_cut = False
    matching.handle(TaskManagerAdded(TM_1, empty_slots(TM_1, 1)))
    [taken] = matching.handle(need(2, profile=HALF))
    assert (taken.slot_index, matching.missing()[0].missing_count) == (0, 1)


def test_a_task_manager_of_its_own_size_serves_no_request_without_one() -> None:
    matching = new_matching()
    matching.is_sized = lambda worker_id: worker_id == TM_1
    matching.handle(TaskManagerAdded(TM_1, empty_slots(TM_1, 1)))
    assert matching.handle(need(1)) == []
    assert [one.profile for one in matching.handle(need(1, OTHER_JOB, HALF))] == [HALF]


@given(
    st.lists(
        st.tuples(st.sampled_from([JOB, OTHER_JOB]), st.integers(0, 5), st.booleans()), max_size=12
    )
)
def test_no_more_is_given_away_than_a_task_manager_has(
    needs: list[tuple[JobId, int, bool]],
) -> None:
    matching = new_matching()
    matching.handle(TaskManagerAdded(TM_1, empty_slots(TM_1, 2)))
    for job, count, is_sized in needs:
        actions = matching.handle(need(count, job, HALF if is_sized else ANY_PROFILE))
        assert matching.free_of(TM_1).matches(ResourceProfile())
        for action in actions[::2]:
            matching.handle(AllocationAnswered(TM_1, action.allocation_id, is_accepted=False))
        for action in actions[1::4]:
            matching.handle(SlotFreed(TM_1, action.allocation_id))
        assert matching.free_of(TM_1).matches(ResourceProfile())


def test_a_decommissioned_task_manager_serves_nobody_and_its_slots_are_missing() -> None:
    matching = new_matching()
    matching.handle(TaskManagerAdded(TM_1, empty_slots(TM_1, 2)))
    matching.handle(need(1))
    matching.handle(AllocationAnswered(TM_1, allocation(1), True))
    assert matching.handle(TaskManagerDecommissioned(TM_1)) == []
    assert matching.missing() == [MissingSlots(JOB, ANY_PROFILE, 1, 1)]
    assert matching.jobs_on(TM_1) == [JOB]
    assert matching.handle(TaskManagerAdded(TM_2, empty_slots(TM_2, 1))) == [
        AllocateSlot(TM_2, 0, JOB, allocation(2), ANY_PROFILE)
    ]
    matching.handle(SlotFreed(TM_1, allocation(1)))
    assert matching.idle_task_managers() == [TM_1]
    assert matching.missing() == []
