"""Jobs that cannot have all their slots take none; those that hold some for nothing are asked to give them back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.cluster.resource_manager.slot_admission import Claim, admit
from headrace.core.ids import JobId

A, B, C = (JobId(name * 16) for name in (b"a", b"b", b"c"))


@pytest.mark.parametrize(
    ("claims", "capacity", "held_back", "to_give_back"),
    [
        ([(A, 2, 2), (B, 4, 0)], None, set[JobId](), ()),
        # As many as there can be, whether they are there or not.
        ([(A, 2, 2), (B, 4, 1)], 6, set[JobId](), ()),
        # A narrower job behind goes first.
        ([(A, 2, 2), (B, 4, 0), (C, 2, 0)], 5, {B}, ()),
        # What was promised to one is not promised to the next.
        ([(A, 3, 0), (B, 3, 0)], 4, {B}, ()),
        # Each holds half, and the earlier one goes on.
        ([(A, 4, 2), (B, 4, 2)], 4, {A, B}, (B,)),
        # The first could not run with all that there is: the second one can.
        ([(A, 9, 2), (B, 4, 2)], 4, {A, B}, (A,)),
        # Nobody could.
        ([(A, 9, 2), (B, 5, 2)], 4, {A, B}, ()),
        # Only as many as are needed, and the last to come first.
        ([(A, 4, 2), (B, 4, 2), (C, 4, 2)], 6, {A, B, C}, (C,)),
        # What a job that runs holds is its own.
        ([(A, 4, 4), (B, 4, 2)], 6, {B}, ()),
    ],
)
def test_decisions(
    claims: list[tuple[JobId, int, int]],
    capacity: int | None,
    held_back: set[JobId],
    to_give_back: tuple[JobId, ...],
) -> None:
    found = admit([Claim(*one) for one in claims], capacity)
    assert (found.held_back, found.to_give_back()) == (held_back, to_give_back)


def test_of_jobs_that_keep_what_they_hold_nobody_expects_anything() -> None:
    found = admit([Claim(B, 2, 1), Claim(C, 2, 1), Claim(A, 4, 3)], 5)
    assert found.to_give_back() == (A,)
    assert found.to_give_back({A}) == (C,)
    assert found.to_give_back({A, C}) == (B,), "A runs then"
    assert found.to_give_back({A, B, C}) == ()


@pytest.mark.parametrize(
    ("claims", "capacity", "impatient", "first", "behind", "held_back"),
    [
        # A narrower job that came before goes first, one that came later does not.
        ([(A, 2, 0), (B, 4, 0), (C, 1, 0)], 4, {B}, B, {C}, {B, C}),
        # Nobody waits for one that has its slots now, nor for one that can never have them.
        ([(B, 4, 0), (C, 1, 0)], 5, {B}, None, set[JobId](), set[JobId]()),
        ([(B, 6, 0), (C, 1, 0)], 4, {B}, None, set[JobId](), {B}),
        # A job that runs, and has lost a slot, gets it back.
        ([(A, 1, 1), (B, 4, 0), (C, 2, 1)], 4, {B}, B, set[JobId](), {B}),
        # The first to come of two.
        ([(A, 2, 2), (B, 3, 0), (C, 4, 0)], 4, {B, C}, B, set[JobId](), {B, C}),
        # One that has not waited for so long yet is behind one that has.
        ([(A, 4, 0), (B, 3, 0), (C, 2, 0)], 3, {B}, None, set[JobId](), {A, C}),
    ],
)
def test_jobs_behind_one_that_has_lost_patience_wait(
    claims: list[tuple[JobId, int, int]],
    capacity: int,
    impatient: set[JobId],
    first: JobId | None,
    behind: set[JobId],
    held_back: set[JobId],
) -> None:
    found = admit([Claim(*one) for one in claims], capacity, impatient)
    assert (found.first, found.behind, found.held_back) == (first, behind, held_back)


def test_a_job_that_has_lost_its_slots_does_not_wait_behind_one_that_has_lost_patience() -> None:
    running, wide = Claim(A, 6, 6), Claim(B, 8, 0)
    assert admit([running, wide, Claim(C, 2, 0)], 10, {B}).behind == {C}
    assert admit([running, wide, Claim(C, 2, 0, has_run=True)], 10, {B}).behind == frozenset()


@given(
    capacity=st.integers(1, 6),
    arrivals=st.lists(
        st.lists(st.tuples(st.integers(1, 6), st.integers(1, 4), st.booleans()), max_size=3),
        min_size=1,
        max_size=25,
    ),
    patience=st.integers(1, 5),
)
def test_no_job_starves_behind_narrower_ones_and_none_waits_for_ever(
    capacity: int, arrivals: list[list[tuple[int, int, bool]]], patience: int
) -> None:
    """Jobs (slots, turns, whether they lose a slot once) come turn by turn; all that fit end within a bound."""
    needs: dict[int, int] = {}
    held: dict[int, int] = {}
    left: dict[int, int] = {}
    falls: set[int] = set()
    came: dict[int, int] = {}
    started: dict[int, int] = {}
    turn = 0
    turns_max = 4 + patience + sum(len(jobs) for jobs in arrivals) * 7 + len(arrivals)
    while turn < len(arrivals) or any(need <= capacity for need in needs.values()):
        assert turn <= turns_max, "a job waits for ever"
        for width, length, is_falling in arrivals[turn] if turn < len(arrivals) else ():
            job = len(came)
            needs[job], held[job], left[job], came[job] = width, 0, length, turn
            falls |= {job} if is_falling else set()
        claims = [Claim(JobId(bytes([job]) * 16), needs[job], held[job]) for job in needs]
        waits = {job for job in needs if held[job] < needs[job] and turn - came[job] >= patience}
        found = admit(claims, capacity, {JobId(bytes([job]) * 16) for job in waits})
        by_id = {JobId(bytes([job]) * 16): job for job in needs}
        for job_id in found.to_give_back():
            held[by_id[job_id]] = 0
        for claim in claims:
            if claim.job_id not in found.held_back:
                held[by_id[claim.job_id]] = claim.required_count
        assert sum(held.values()) <= capacity
        for job in list(needs):
            if needs[job] == held[job]:
                if job not in started:
                    started[job] = turn
                left[job] -= 1
                if job in falls:
                    falls.discard(job)
                    held[job] -= 1
                elif left[job] <= 0:
                    del needs[job], held[job]
        turn += 1
    # Jobs that came after one which had lost patience have not run before it.
    for job, begin in started.items():
        for other, other_begin in started.items():
            if other > job and came[other] >= came[job] + patience and other_begin < begin:
                raise AssertionError(f"job {other} ran before job {job}, which had lost patience")


@given(st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8)), max_size=8), st.integers(0, 24))
def test_what_is_admitted_fits_and_nobody_who_fits_alone_waits_for_ever(
    pairs: list[tuple[int, int]], capacity: int
) -> None:
    claims = [
        Claim(JobId(bytes([n]) * 16), required, min(held, required))
        for n, (required, held) in enumerate(pairs)
    ]
    found = admit(claims, capacity)
    held = sum(claim.held_count for claim in claims)
    promised = sum(c.lacking_count for c in claims if c.job_id not in found.held_back)
    assert promised == 0 or held + promised <= capacity
    assert set(found.to_give_back()) <= found.held_back
    if all(c.job_id in found.held_back for c in claims if c.required_count):
        # Where all wait, one that the cluster is wide enough for goes on by what is given back.
        fits = any(c.required_count and c.lacking_count + held - c.held_count <= 0 for c in claims)
        assert not fits
        could = any(0 < c.required_count <= capacity for c in claims)
        assert bool(found.to_give_back()) == (could and held > 0)
