"""Who may push, and which jobs live: the laws of the pure machines, and names of files."""

from hypothesis import given
from hypothesis import strategies as st

from headrace.core.ids import JobId
from headrace.shuffle_service.admission import JobLeases, WriterAdmission
from headrace.shuffle_service.partition_store import file_stem, parse_stem
from tests.unit.network.exchange import partition_id

JOBS = [JobId(bytes([number]) * 16) for number in range(3)]


@given(
    capacity=st.integers(1, 4),
    steps=st.lists(st.tuples(st.booleans(), st.integers(0, 9)), max_size=60),
)
def test_writers_never_exceed_the_capacity_and_enter_in_the_order_of_coming(
    capacity: int, steps: list[tuple[bool, int]]
) -> None:
    admission: WriterAdmission[int] = WriterAdmission(capacity)
    active: list[int] = []
    waiting: list[int] = []
    for enters, writer in steps:
        if enters and writer not in active and writer not in waiting:
            if admission.enter(writer):
                active.append(writer)
            else:
                waiting.append(writer)
        elif not enters:
            active = [each for each in active if each != writer]
            waiting = [each for each in waiting if each != writer]
            admitted = admission.leave(writer)
            assert admitted == waiting[: len(admitted)]
            waiting = waiting[len(admitted) :]
            active += admitted
        assert admission.active_count == len(active) <= capacity
        assert admission.waiting_count == len(waiting)
        # Nobody waits while there is room.
        assert not waiting or len(active) == capacity


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
