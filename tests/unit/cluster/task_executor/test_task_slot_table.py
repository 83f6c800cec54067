"""TaskSlotTable: slots are allocated, activated, released and never forgotten."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.cluster.task_executor.task_slot_table import FreedSlot, TaskSlotState, TaskSlotTable
from headrace.core.resource_profile import ResourceProfile
from headrace.gateways.errors import SlotOccupiedError
from tests.unit.cluster.cluster_samples import (
    JOB,
    OTHER_JOB,
    SLOT_PROFILE,
    TM_1,
    allocation,
    attempt,
)


def new_table(slot_count: int = 1) -> TaskSlotTable:
    return TaskSlotTable(slot_count, SLOT_PROFILE)


def test_an_allocated_slot_is_offered_until_it_is_accepted() -> None:
    table = new_table()
    table.allocate(0, JOB, allocation(1))
    assert [offer.allocation_id for offer in table.offers_for(JOB)] == [allocation(1)]
    assert table.activate(allocation(1))
    assert table.offers_for(JOB) == ()


def test_the_same_allocation_twice_is_one_slot() -> None:
    table = new_table()
    first = table.allocate(0, JOB, allocation(1))
    second = table.allocate(0, JOB, allocation(1))
    assert table.is_expired(second) and not table.is_expired(first)


def test_a_taken_slot_is_refused_to_another_allocation() -> None:
    table = new_table()
    table.allocate(0, JOB, allocation(1))
    with pytest.raises(SlotOccupiedError):
        table.allocate(0, OTHER_JOB, allocation(2))


def test_a_ticket_is_void_once_the_slot_is_active() -> None:
    table = new_table()
    ticket = table.allocate(0, JOB, allocation(1))
    assert table.is_expired(ticket)
    table.activate(allocation(1))
    assert not table.is_expired(ticket)


def test_losing_the_job_master_starts_a_new_waiting_period() -> None:
    table = new_table()
    old = table.allocate(0, JOB, allocation(1))
    table.activate(allocation(1))
    new = table.deactivate(allocation(1))
    assert new is not None and table.is_expired(new) and not table.is_expired(old)


def test_a_slot_with_tasks_is_free_only_when_the_last_one_has_ended() -> None:
    table = new_table()
    table.allocate(0, JOB, allocation(1))
    table.activate(allocation(1))
    assert table.add_task(allocation(1), attempt(0)) and table.add_task(allocation(1), attempt(1))
    assert table.free(allocation(1)) == (attempt(0), attempt(1))
    assert table.state_of(allocation(1)) is TaskSlotState.RELEASING
    assert not table.add_task(allocation(1), attempt(2))
    assert table.remove_task(attempt(0)) is None
    assert table.remove_task(attempt(1)) == FreedSlot(0, JOB, allocation(1))


def test_freeing_twice_is_harmless() -> None:
    table = new_table()
    table.allocate(0, JOB, allocation(1))
    assert table.free(allocation(1)) == FreedSlot(0, JOB, allocation(1))
    assert table.free(allocation(1)) == ()


def test_a_task_needs_an_active_slot_of_its_job() -> None:
    table = new_table(2)
    table.allocate(0, JOB, allocation(1))
    assert not table.add_task(allocation(1), attempt(0))
    table.allocate(1, OTHER_JOB, allocation(2))
    table.activate(allocation(2))
    assert not table.add_task(allocation(2), attempt(0))


def test_the_report_lists_every_slot() -> None:
    table = new_table(2)
    table.allocate(1, JOB, allocation(1))
    slots = table.report(TM_1).slots
    assert [(s.slot_id.slot_index, s.job_id, s.allocation_id) for s in slots] == [
        (0, None, None),
        (1, JOB, allocation(1)),
    ]


operations = st.lists(
    st.tuples(
        st.sampled_from(["allocate", "activate", "deactivate", "free", "add", "remove"]),
        st.integers(1, 3),
    ),
    max_size=40,
)


@given(operations)
def test_every_slot_is_in_one_state_and_tasks_are_only_in_slots_in_use(
    steps: list[tuple[str, int]],
) -> None:
    table = new_table(2)
    for name, number in steps:
        match name:
            case "allocate":
                try:
                    table.allocate(-1, JOB, allocation(number))
                except SlotOccupiedError:
                    assert all(state is not TaskSlotState.FREE for _, state in table)
            case "activate":
                table.activate(allocation(number))
            case "deactivate":
                table.deactivate(allocation(number))
            case "free":
                table.free(allocation(number))
            case "add":
                table.add_task(allocation(number), attempt(number))
            case _:
                table.remove_task(attempt(number))
        known = [s.allocation_id for s in table.report(TM_1).slots if s.allocation_id is not None]
        assert len(known) == len(set(known))


def test_slots_are_cut_while_resources_are_left_and_are_gone_when_they_are_freed() -> None:
    table = new_table(2)
    half = ResourceProfile(0.75, 1 << 20)
    table.allocate(2, JOB, allocation(1), half)
    table.allocate(3, JOB, allocation(2), half)
    assert [offer.profile for offer in table.offers_for(JOB)] == [half, half]
    with pytest.raises(SlotOccupiedError, match=r"a slot of 0\.75 core.* left: 0\.5 core"):
        table.allocate(4, JOB, allocation(3), half)
    with pytest.raises(SlotOccupiedError, match="too large for what is left"):
        table.allocate(0, JOB, allocation(3))
    assert [status.is_cut for status in table.report(TM_1).slots] == [False, False, True, True]
    assert isinstance(table.free(allocation(1)), FreedSlot)
    table.allocate(0, OTHER_JOB, allocation(3))
    assert [index for index, _ in table] == [0, 1, 3]


def test_each_slot_has_addresses_of_its_own() -> None:
    gpu = ResourceProfile(0.1, 1, external_resources=(("gpu", 1),))
    whole = ResourceProfile(1.0, 1 << 30, external_resources=(("gpu", 2),))
    table = TaskSlotTable(1, whole, {"gpu": ("a", "b")})
    table.allocate(1, JOB, allocation(1), gpu)
    table.allocate(2, JOB, allocation(2), gpu)
    found = [table.addresses_of(allocation(number))["gpu"] for number in (1, 2)]
    assert found == [("a",), ("b",)]
    table.free(allocation(1))
    table.allocate(1, JOB, allocation(3), gpu)
    assert table.addresses_of(allocation(3)) == {"gpu": ("a",)}
    for number in (2, 3):
        table.free(allocation(number))
    table.allocate(0, JOB, allocation(4))
    assert table.addresses_of(allocation(4)) == {"gpu": ("a", "b")}
