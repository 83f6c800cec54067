"""Profiles: what serves what, and how many TaskManagers the wanted slots take."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from headrace.core.resource_profile import (
    UNSPECIFIED,
    ResourceProfile,
    choose_slot,
    sum_of,
    unserved,
    workers_needed,
)

USUAL = ResourceProfile(1.0, 1 << 30)
SMALL = ResourceProfile(0.25, 100 << 20)
GPU = ResourceProfile(0.5, 10 << 20, external_resources=(("gpu", 1),))


def test_a_slot_that_was_cut_for_a_profile_serves_it_before_those_that_want_nothing() -> None:
    wanted = {UNSPECIFIED: 1, SMALL: 1}
    assert unserved(wanted, {SMALL: 1}) == {UNSPECIFIED: 1}
    assert unserved(wanted, {USUAL: 1}) == {SMALL: 1}
    assert unserved(wanted, {USUAL: 1, SMALL: 1}) == {}
    assert unserved({SMALL: 2}, {USUAL: 1, SMALL: 1}) == {}
    assert unserved({GPU: 1}, {USUAL: 3}) == {GPU: 1}


def test_the_slot_of_equal_size_is_chosen_else_the_smallest() -> None:
    assert choose_slot(SMALL, [GPU, USUAL, SMALL]) == SMALL
    assert choose_slot(UNSPECIFIED, [USUAL, SMALL]) == SMALL
    assert choose_slot(GPU, [USUAL, SMALL]) is None


def test_a_profile_reads_as_people_say_it() -> None:
    assert str(GPU) == "0.5 core(s), 10 mb of task heap memory and 1 gpu"
    assert USUAL.shown_for(GPU) == "no gpu"


def test_slots_are_packed_into_as_few_task_managers_as_have_room_for_them() -> None:
    total = ResourceProfile(2.0, 4 << 30)
    assert workers_needed({SMALL: 8}, total, USUAL) == 1
    assert workers_needed({SMALL: 9}, total, USUAL) == 2
    assert workers_needed({UNSPECIFIED: 2, SMALL: 1}, total, USUAL) == 2
    assert workers_needed({GPU: 1}, total, USUAL) == 0


profiles = st.builds(
    ResourceProfile,
    cpu_cores=st.sampled_from([0.1, 0.25, 0.5, 1.0]),
    task_heap_bytes=st.sampled_from([1, 10, 50, 100]),
)
counts = st.dictionaries(profiles | st.just(UNSPECIFIED), st.integers(1, 4), max_size=4)


@given(counts, counts)
def test_no_more_is_served_than_there_is(
    wanted: dict[ResourceProfile, int], held: dict[ResourceProfile, int]
) -> None:
    missing = unserved(wanted, held)
    assert all(0 < missing[each] <= wanted[each] for each in missing)
    served_count = sum(wanted.values()) - missing.total()
    assert served_count <= sum(held.values())
    # Slots cut exactly for the wants serve all of them.
    assert unserved(wanted, wanted) == Counter()


@given(counts)
def test_task_managers_have_room_for_what_is_packed_into_them(
    wanted: dict[ResourceProfile, int],
) -> None:
    total = ResourceProfile(1.0, 100)
    count = workers_needed(wanted, total, ResourceProfile(0.5, 50))
    slots = sum_of(
        (ResourceProfile(0.5, 50) if each.is_unspecified else each).times(number)
        for each, number in wanted.items()
    )
    assert total.times(count).matches(slots)
    assert count <= sum(wanted.values())
