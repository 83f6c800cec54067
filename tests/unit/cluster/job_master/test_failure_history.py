"""FailureHistory: what people read of many failures, however they follow each other, and how much of it is kept."""

from collections import deque

from hypothesis import given
from hypothesis import strategies as st

from headrace.cluster.job_master.failover import CONCURRENT_MAX, Failure, FailureHistory
from headrace.cluster.job_master.restart_strategies import FixedDelayRestart
from headrace.gateways.messages import ErrorInfo

SIZE, RESTARTS = 3, 4


def failure(number: int, *, is_consequence: bool, recoverable: bool = True) -> Failure:
    return Failure(
        ErrorInfo("Error", str(number), "USER", recoverable, is_consequence=is_consequence)
    )


@given(st.lists(st.tuples(st.booleans(), st.booleans(), st.integers(0, 9)), max_size=25))
def test_the_cause_is_the_first_failure_that_followed_from_no_other_and_none_is_told_twice(
    events: list[tuple[bool, bool, int]],
) -> None:
    history = FailureHistory(FixedDelayRestart(RESTARTS, 100), SIZE)
    expected: deque[list[Failure]] = deque(maxlen=SIZE)
    restart_count = 0
    for number, (is_concurrent, is_consequence, chance) in enumerate(events):
        happened = failure(number, is_consequence=is_consequence, recoverable=chance > 0)
        if is_concurrent:
            history.refine(happened)
            if not expected:
                expected.append([])
            expected[-1].append(happened)
        else:
            delay_ms = history.decide(happened, number * 1000)
            may_restart = happened.error.recoverable and restart_count < RESTARTS
            assert delay_ms == (100 if may_restart else None)
            restart_count += may_restart
            expected.append([happened])
    assert history.restart_count == restart_count
    for entry, failures in zip(history.entries, expected, strict=True):
        causes = [one for one in failures if not one.is_consequence]
        assert entry.root.failure == (causes or failures)[0]
        told = [entry.root.failure, *(one.failure for one in entry.concurrent)]
        assert sorted(told, key=str) == sorted(failures, key=str)
    if history.entries:
        assert history.cause == history.entries[-1].root.failure


def user_error(text: str) -> Failure:
    return Failure(ErrorInfo("UserCodeError", f"{text}\nTraceback of {text}", "USER", True))


LOST = Failure(ErrorInfo("ConnectionLostError", "reset", "INTERNAL", True, is_consequence=True))
POISON, OTHER = user_error("bad (in operator 'map', f.py, line 3)"), user_error("worse")


def test_an_error_that_comes_again_after_so_many_restarts_is_final_and_says_so() -> None:
    history = FailureHistory(FixedDelayRestart(100, 7), SIZE, same_error_restarts=2)
    failures = [POISON, OTHER, POISON, POISON, OTHER, POISON, POISON, POISON]
    assert [history.decide(one, 0) for one in failures] == [7] * 7 + [None]
    assert history.cause is not None and history.cause.is_final
    first, _, rest = history.cause.error.text.partition("\n")
    assert first.startswith(
        "bad (in operator 'map', f.py, line 3) (the same error as before each of"
    )
    assert "last 2 restarts" in first and "headrace.restart.same-error-restarts" in first
    assert rest == "Traceback of bad (in operator 'map', f.py, line 3)"


def test_what_a_lost_connection_came_from_counts_and_lost_connections_themselves_do_not() -> None:
    history = FailureHistory(FixedDelayRestart(100, 7), SIZE, same_error_restarts=1)
    assert [history.decide(LOST, 0) for _ in range(4)] == [7] * 4
    history.refine(POISON)
    assert history.decide(LOST, 0) == 7
    history.refine(POISON)
    assert history.decide(POISON, 0) is None


def test_unless_it_is_asked_for_the_strategy_alone_counts() -> None:
    history = FailureHistory(FixedDelayRestart(100, 7), SIZE)
    assert [history.decide(POISON, 0) for _ in range(100)] == [7] * 100


def test_of_thousands_that_come_with_one_a_hundred_are_kept() -> None:
    history = FailureHistory(FixedDelayRestart(1, 0), SIZE)
    history.decide(failure(0, is_consequence=False), 0)
    for number in range(1, 5000):
        history.refine(failure(number, is_consequence=True))
    (entry,) = history.entries
    assert entry.root.failure.error.text == "0"
    assert [one.failure.error.text for one in entry.concurrent] == [
        str(number) for number in range(1, CONCURRENT_MAX + 1)
    ]
