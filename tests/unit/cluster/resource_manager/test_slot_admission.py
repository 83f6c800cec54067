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
