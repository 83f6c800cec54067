"""Restart strategies: which failure is final, and how long the pause is."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.cluster.job_master.failover.restart_strategies import (
    ExponentialDelayRestart,
    FailureRateRestart,
    FixedDelayRestart,
    NoRestart,
    create_restart_strategy,
    describe_restart_strategy,
)
from headrace.core.config import Settings
from headrace.core.errors import ConfigurationError


def exponential(max_attempts: int = 100, jitter: float = 0.0) -> ExponentialDelayRestart:
    return ExponentialDelayRestart(
        initial_ms=1_000,
        max_ms=10_000,
        multiplier=2.0,
        reset_after_ms=60_000,
        jitter_factor=jitter,
        max_attempts=max_attempts,
        random=random.Random(1),
    )


def test_without_a_strategy_the_first_failure_is_final() -> None:
    assert NoRestart().failure(0) is None
    assert create_restart_strategy(Settings(), random.Random(1)).failure(0) is None


def test_a_job_that_takes_checkpoints_restarts_with_growing_pauses_unless_it_says_otherwise() -> (
    None
):
    settings = Settings({"execution.checkpointing.interval": "1 s"})
    strategy = create_restart_strategy(settings, random.Random(1))
    assert isinstance(strategy, ExponentialDelayRestart)
    none = settings.with_values({"restart-strategy.type": "none"})
    assert isinstance(create_restart_strategy(none, random.Random(1)), NoRestart)


def test_a_fixed_delay_allows_its_attempts_and_never_counts_anew() -> None:
    strategy = FixedDelayRestart(2, 500)
    assert [strategy.failure(at) for at in (0, 1, 10**9)] == [500, 500, None]


def test_a_failure_rate_refuses_one_failure_too_many_within_the_interval() -> None:
    strategy = FailureRateRestart(2, 1_000, 50)
    assert [strategy.failure(at) for at in (0, 100, 999)] == [50, 50, None]


def test_a_failure_rate_forgets_what_is_older_than_the_interval() -> None:
    strategy = FailureRateRestart(2, 1_000, 50)
    assert [strategy.failure(at) for at in (0, 100, 1_000)] == [50, 50, 50]


def test_exponential_pauses_grow_to_their_maximum() -> None:
    strategy = exponential()
    times = [0, 5_000, 10_000, 20_000, 31_000]
    assert [strategy.failure(at) for at in times] == [1_000, 2_000, 4_000, 8_000, 10_000]


def test_failures_before_the_planned_restart_belong_to_it() -> None:
    strategy = exponential()
    assert strategy.failure(0) == 1_000
    assert strategy.failure(400) == 600
    assert strategy.failure(2_000) == 2_000


def test_a_quiet_time_resets_the_pause() -> None:
    strategy = exponential()
    strategy.failure(0)
    strategy.failure(2_000)
    assert strategy.failure(100_000) == 1_000


def test_too_many_restarts_in_a_row_are_final() -> None:
    strategy = exponential(max_attempts=1)
    strategy.failure(0)
    assert strategy.failure(5_000) is None


@given(st.integers(0, 12))
def test_jitter_stays_within_its_share(failures: int) -> None:
    strategy = exponential(jitter=0.1)
    at, pause = 0.0, 0.0
    for _ in range(failures + 1):
        pause = strategy.failure(at) or 0.0
        at += pause + 1
    nominal = min(10_000, 1_000 * 2.0**failures)
    assert 0.9 * nominal <= pause <= min(10_000, 1.1 * nominal)


def test_settings_choose_the_strategy() -> None:
    settings = Settings(
        {
            "restart-strategy.type": "fixed-delay",
            "restart-strategy.fixed-delay.attempts": "3",
            "restart-strategy.fixed-delay.delay": "2 s",
        }
    )
    assert create_restart_strategy(settings, random.Random(1)).failure(0) == 2_000


def test_an_unknown_strategy_is_an_error_that_names_the_option() -> None:
    with pytest.raises(
        ConfigurationError,
        match=r"restart-strategy\.type' has the value 'maybe': it must be one of none",
    ):
        create_restart_strategy(Settings({"restart-strategy.type": "maybe"}), random.Random(1))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("exponential-delay.backoff-multiplier", "0.5"),
        ("exponential-delay.jitter-factor", "1.5"),
        ("exponential-delay.initial-backoff", "-1 s"),
        ("exponential-delay.attempts-before-reset-backoff", "-1"),
        ("failure-rate.max-failures-per-interval", "0"),
        ("fixed-delay.attempts", "-3"),
    ],
)
def test_numbers_that_make_no_sense_are_refused_by_name(key: str, value: str) -> None:
    full_key = f"restart-strategy.{key}"
    settings = Settings({"restart-strategy.type": key.split(".")[0], full_key: value})
    with pytest.raises(ConfigurationError, match=f"{full_key}.*must be at (least|most)"):
        create_restart_strategy(settings, random.Random(1))


@given(
    st.integers(1, 4),
    st.integers(1, 50),
    st.lists(st.integers(0, 30), min_size=1, max_size=20),
)
def test_a_failure_rate_refuses_once_more_failures_lie_in_one_interval_than_are_allowed(
    allowed: int, interval_ms: int, pauses_ms: list[int]
) -> None:
    strategy = FailureRateRestart(allowed, interval_ms, 5)
    failures: list[int] = []
    now_ms = 0
    for pause_ms in pauses_ms:
        now_ms += pause_ms
        failures.append(now_ms)
        recent = [at for at in failures if now_ms - at < interval_ms]
        assert strategy.failure(now_ms) == (None if len(recent) > allowed else 5)


@given(st.lists(st.integers(0, 70_000), min_size=1, max_size=20), st.integers(1, 6))
def test_exponential_pauses_are_those_of_the_formula_and_merged_failures_count_once(
    pauses_ms: list[int], max_attempts: int
) -> None:
    strategy = exponential(max_attempts)
    now_ms, restart_at_ms, attempts = 0.0, float("-inf"), 0
    for pause_ms in pauses_ms:
        now_ms += pause_ms
        found = strategy.failure(now_ms)
        if now_ms < restart_at_ms:
            assert found == restart_at_ms - now_ms, "it belongs to the restart that is planned"
            continue
        if now_ms - restart_at_ms >= 60_000:
            attempts = 0
        if attempts == max_attempts:
            assert found is None
            return
        assert found == min(10_000, 1_000 * 2.0**attempts)
        attempts += 1
        restart_at_ms = now_ms + found


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({}, "Cluster level default restart strategy"),
        ({"type": "none"}, "Restart deactivated."),
        (
            {"type": "fixed-delay", "fixed-delay.attempts": "3", "fixed-delay.delay": "10 s"},
            "Restart with fixed delay (PT10S). #3 restart attempts.",
        ),
        (
            {"type": "failure-rate", "failure-rate.failure-rate-interval": "90 s"},
            "Failure rate restart with maximum of 1 failures within interval PT1M30S and fixed delay PT1S.",
        ),
        (
            {
                "type": "exponential-delay",
                "exponential-delay.initial-backoff": "100 ms",
                "exponential-delay.max-backoff": "0 s",
            },
            "Restart with exponential delay: starting at PT0.1S, increasing by 1.500000, with maximum PT0S. "
            "Delay resets after PT1H with jitter 0.100000",
        ),
    ],
    ids=["unset", "none", "fixed delay", "failure rate", "exponential delay"],
)
def test_a_strategy_is_described_with_the_sentence_of_flink(
    settings: dict[str, str], sentence: str
) -> None:
    keys = {f"restart-strategy.{key}": value for key, value in settings.items()}
    assert describe_restart_strategy(Settings(keys)) == sentence
