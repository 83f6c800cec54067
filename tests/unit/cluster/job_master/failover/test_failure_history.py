"""FailureHistory: what people read of many failures, however they follow each other, and how much of it is kept."""

from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.cluster.error_reports import error_info_of
from headrace.cluster.job_master.checkpointing.store.metadata_builder import UNKNOWN_POSITION
from headrace.cluster.job_master.failover.failure_history import (
    CONCURRENT_MAX,
    SAME_ERROR_RESTARTS,
    Failure,
    FailureHistory,
)
from headrace.cluster.job_master.failover.restart_strategies import (
    FixedDelayRestart,
    NoRestart,
    RestartStrategy,
)
from headrace.core.config import Settings
from headrace.core.errors import UserCodeError, wrap_user_error
from headrace.gateways.errors import CheckpointFailedError
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
    error = UserCodeError("ValueError", text, "map", "f.py, line 3", f"Traceback of {text}")
    return Failure(error_info_of(error))


LOST = Failure(ErrorInfo("ConnectionLostError", "reset", "INTERNAL", True, is_consequence=True))
POISON, SAME_PLACE = user_error("bad record 1"), user_error("bad record 2")
OTHER = Failure(error_info_of(UserCodeError("KeyError", "worse", "map", "f.py, line 9", "")))


def history_of(same_error_restarts: int = 2) -> FailureHistory:
    return FailureHistory(FixedDelayRestart(100, 7), SIZE, same_error_restarts)


def decisions(history: FailureHistory, *failures: Failure) -> list[float | None]:
    return [history.decide(one, 0) for one in failures]


def test_the_same_error_a_third_time_without_progress_is_final_and_says_so_behind_its_cause() -> (
    None
):
    history = history_of(Settings().get_option(SAME_ERROR_RESTARTS))
    assert decisions(history, POISON, SAME_PLACE, POISON) == [7, 7, None]
    assert history.cause is not None and history.cause.is_final
    first, _, rest = history.cause.error.text.partition("\n")
    assert first.startswith("ValueError: bad record 1 (in operator 'map', f.py, line 3) (the same")
    assert "3 times without progress" in first
    assert "headrace.restart.same-error-restarts" in first and "on_failure()" in first
    assert history.cause.error.remote_traceback == "Traceback of bad record 1" and not rest


def test_errors_of_other_places_between_do_not_hide_that_one_comes_again() -> None:
    failures = [POISON, OTHER, LOST, POISON, OTHER, POISON]
    assert decisions(history_of(), *failures) == [7, 7, 7, 7, 7, None]


def fails_at(history: FailureHistory, now_ms: int, running_since_ms: int | None = 0) -> bool:
    """Whether the poison that comes at this time is the end."""
    return history.decide(POISON, 0, now_ms, running_since_ms=running_since_ms) is None


def test_a_checkpoint_for_which_the_sources_had_read_on_begins_the_count_anew() -> None:
    history = history_of()
    history.checkpoint_completed(b"here", triggered_ms=10_000, running_since_ms=0)
    assert not fails_at(history, 12_000) and not fails_at(history, 12_000)
    history.checkpoint_completed(b"there", triggered_ms=23_001, running_since_ms=20_000)
    assert [fails_at(history, 24_000) for _ in range(3)] == [False, False, True]


def test_a_checkpoint_of_the_same_place_is_no_progress() -> None:
    history = history_of()
    for time_ms, is_last in ((10_000, False), (20_000, False), (30_000, True)):
        history.checkpoint_completed(b"here", triggered_ms=time_ms, running_since_ms=0)
        assert fails_at(history, time_ms) is is_last


def test_checkpoints_on_the_way_to_where_it_failed_are_no_progress() -> None:
    """A source of so many records a second is nearer to the poison with each of them, and never behind it."""
    history = history_of()
    history.checkpoint_completed(b"at 1000", triggered_ms=1_000, running_since_ms=0)
    assert not fails_at(history, 3_000)
    history.checkpoint_completed(b"at 2000", triggered_ms=11_000, running_since_ms=10_000)
    assert not fails_at(history, 12_000, running_since_ms=10_000)
    history.checkpoint_completed(b"at 2500", triggered_ms=20_500, running_since_ms=20_000)
    assert fails_at(history, 21_000, running_since_ms=20_000)


def test_without_a_checkpoint_the_way_begins_where_the_job_did() -> None:
    history = history_of(1)
    assert not fails_at(history, 5_000)
    history.checkpoint_completed(b"here", triggered_ms=14_000, running_since_ms=10_000)
    assert fails_at(history, 15_000, running_since_ms=10_000)


def test_where_nobody_knows_how_far_sources_had_read_time_alone_says_it() -> None:
    history = history_of(1)
    for start_ms in range(0, 50_000, 10_000):
        history.checkpoint_completed(UNKNOWN_POSITION, start_ms + 5_000, start_ms)
        assert not fails_at(history, start_ms + 6_000, start_ms)
    assert fails_at(history, 51_000, 50_000)


def test_what_a_lost_connection_came_from_counts_and_lost_connections_themselves_do_not() -> None:
    history = history_of(1)
    assert decisions(history, LOST, LOST, LOST, LOST) == [7] * 4
    history.refine(POISON)
    assert decisions(history, POISON) == [None]


def test_services_that_do_not_answer_are_waited_for_as_long_as_the_strategy_allows() -> None:
    outages = [wrap_user_error(error, "map") for error in (ConnectionResetError(), TimeoutError())]
    failures = [Failure(error_info_of(one)) for one in outages * 10]
    assert decisions(history_of(1), *failures) == [7] * 20


def test_a_full_disk_of_checkpoints_counts_like_an_error_of_the_program() -> None:
    full = Failure.of_error(CheckpointFailedError("no space left"))
    assert decisions(history_of(), full, full, full) == [7, 7, None]


def test_with_zero_the_strategy_alone_counts() -> None:
    history = history_of(0)
    assert decisions(history, *[POISON] * 100) == [7] * 100


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


def test_it_is_known_whether_older_failures_are_forgotten() -> None:
    history = FailureHistory(FixedDelayRestart(RESTARTS, 100), SIZE)
    for number in range(SIZE):
        history.decide(failure(number, is_consequence=False), number)
    assert not history.is_truncated
    history.decide(failure(SIZE, is_consequence=False), SIZE)
    assert history.is_truncated and len(history.entries) == SIZE


@pytest.mark.parametrize(
    ("strategy", "pause_ms"), [(FixedDelayRestart(1, 7), 0), (NoRestart(), None)]
)
def test_resources_that_the_host_takes_away_are_no_failure_of_a_job_that_may_restart(
    strategy: RestartStrategy, pause_ms: float | None
) -> None:
    history = FailureHistory(strategy, SIZE)
    planned = Failure(ErrorInfo("Error", "taken away", "EXTERNAL", True, is_planned=True))
    assert [history.decide(planned, 0) for _ in range(3)] == [pause_ms] * 3
    assert history.decide(failure(0, is_consequence=False), 0) == (
        None if pause_ms is None else 7
    ), "it has its one attempt still"
