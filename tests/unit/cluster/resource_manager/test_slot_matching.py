"""SlotMatching: events in, allocations out."""

import itertools

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
    TaskManagerRemoved,
)
from headrace.core.ids import JobId, ResourceId, SlotId
from headrace.gateways.messages import ResourceProfile, SlotStatus
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


def test_a_declared_need_takes_free_slots_in_order_of_arrival() -> None:
    matching = new_matching()
    matching.handle(TaskManagerAdded(TM_1, empty_slots(TM_1, 1)))
    matching.handle(TaskManagerAdded(TM_2, empty_slots(TM_2, 2)))
    assert matching.handle(need(2)) == [
        AllocateSlot(TM_1, 0, JOB, allocation(1), ANY_PROFILE),
        AllocateSlot(TM_2, 0, JOB, allocation(2), ANY_PROFILE),
    ]
    assert matching.missing() == []


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
    assert matching.slot_counts(TM_1) == (1, 0)


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
                needed[job] = max(count, matching.acquired_count(job))
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
            assert matching.acquired_count(job) <= count
        free = sum(matching.slot_counts(resource_id)[1] for resource_id in slots)
        missing = sum(entry.missing_count for entry in matching.missing())
        assert free == 0 or missing == 0, "a free slot stood beside a job that wanted one"
        acquired = sum(matching.acquired_count(job) for job in needed)
        assert acquired + free == sum(slots.values())
