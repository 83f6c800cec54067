"""Admission of pushes and life of jobs: the laws of the pure machines, and names of files."""

from hypothesis import given
from hypothesis import strategies as st

from headrace.core.ids import JobId
from headrace.shuffle_service.endpoint import JobLeases
from headrace.shuffle_service.partition_store import file_stem, parse_stem
from headrace.shuffle_service.service import WriteBudget
from tests.unit.network.exchange import partition_id

JOBS = [JobId(bytes([number]) * 16) for number in range(3)]


@given(
    shared=st.integers(0, 100),
    sizes=st.tuples(st.integers(1, 10), st.integers(0, 20)),
    steps=st.lists(st.tuples(st.booleans(), st.integers(0, 9)), max_size=60),
)
def test_every_writer_has_its_minimum_at_once_and_all_together_little_more_than_is_shared(
    shared: int, sizes: tuple[int, int], steps: list[tuple[bool, int]]
) -> None:
    minimum, maximum = sizes[0], sum(sizes)
    budget = WriteBudget(shared, minimum, maximum)
    grants: dict[int, int] = {}
    for enters, writer in steps:
        if enters and writer not in grants:
            grants[writer] = budget.enter(writer)
            assert minimum <= grants[writer] <= maximum
        elif not enters:
            grants.pop(writer, None)
            budget.leave(writer)
        assert budget.granted == sum(grants.values()) <= shared + minimum * len(grants)


def test_the_first_writers_have_all_they_can_use_and_later_ones_share_what_is_left() -> None:
    budget = WriteBudget(shared=1000, minimum=10, maximum=100)
    grants = [budget.enter(writer) for writer in range(30)]
    assert grants[:7] == [100] * 7 and grants[7] == 75 and grants[-1] == 10
    assert grants == sorted(grants, reverse=True)
    for writer in range(30):
        budget.leave(writer)
        budget.leave(writer)
    assert budget.granted == 0 and budget.enter(30) == 100


@given(
    steps=st.lists(
        st.tuples(st.sampled_from(["heard", "forget", "wait"]), st.integers(0, 2)), max_size=40
    )
)
def test_a_job_is_over_exactly_when_nothing_was_heard_of_it_for_a_lease(
    steps: list[tuple[str, int]],
) -> None:
    leases = JobLeases(10)
    heard: dict[JobId, int] = {}
    now = 0
    for what, number in steps:
        match what:
            case "heard":
                leases.heard([JOBS[number]], now)
                heard[JOBS[number]] = now
            case "forget":
                leases.forget(JOBS[number])
                heard.pop(JOBS[number], None)
            case _:
                now += 3 * (number + 1)
                expected = {job for job, at in heard.items() if now - at >= 10}
                assert set(leases.expire(now)) == expected
                heard = {job: at for job, at in heard.items() if job not in expected}
        assert leases.job_ids == frozenset(heard)


@given(number=st.integers(0, 2**31 - 1), attempt=st.integers(0, 2**31 - 1))
def test_the_name_of_a_file_says_whose_result_it_is(number: int, attempt: int) -> None:
    key = partition_id(number, attempt)
    assert parse_stem(key.producer.job_id, file_stem(key)) == key
