"""Restart strategies: decide if a failed job may start again, and after which pause. Pure.

Times are monotonic milliseconds.
Source: Flink RestartBackoffTimeStrategyFactoryLoader, FixedDelay…, FailureRate…,
ExponentialDelayRestartBackoffTimeStrategy.
"""

from datetime import timedelta
from typing import Final, Protocol

from headrace.checkpoint.options import INTERVAL
from headrace.core.config import ConfigOption, Settings
from headrace.core.errors import ConfigurationError
from headrace.core.randomness import SeededRandom

RESTART_STRATEGY: Final = ConfigOption(
    "restart-strategy.type",
    str,
    "",
    "Restarts after a failure: none, fixed-delay, failure-rate or exponential-delay. Unset: exponential-delay if "
    "checkpoints are taken, otherwise none.",
    deprecated_keys=("restart-strategy",),
    choices=("none", "fixed-delay", "failure-rate", "exponential-delay"),
    synonyms=("off", "disable", "fixeddelay", "failurerate", "exponentialdelay"),
)
FIXED_DELAY_ATTEMPTS: Final = ConfigOption(
    "restart-strategy.fixed-delay.attempts",
    int,
    1,
    "Number of restarts before a failure is final; 0: the first failure is.",
)
FIXED_DELAY_DELAY: Final = ConfigOption(
    "restart-strategy.fixed-delay.delay", timedelta, timedelta(seconds=1), "Pause before a restart."
)
FAILURE_RATE_MAX: Final = ConfigOption(
    "restart-strategy.failure-rate.max-failures-per-interval",
    int,
    1,
    "Largest number of failures within the interval that are followed by a restart; one more ends the job.",
    least=1,
)
FAILURE_RATE_INTERVAL: Final = ConfigOption(
    "restart-strategy.failure-rate.failure-rate-interval",
    timedelta,
    timedelta(minutes=1),
    "The interval in which failures are counted.",
)
FAILURE_RATE_DELAY: Final = ConfigOption(
    "restart-strategy.failure-rate.delay",
    timedelta,
    timedelta(seconds=1),
    "Pause before a restart.",
)
EXPONENTIAL_INITIAL: Final = ConfigOption(
    "restart-strategy.exponential-delay.initial-backoff",
    timedelta,
    timedelta(seconds=1),
    "Pause before the first restart.",
)
EXPONENTIAL_MAX: Final = ConfigOption(
    "restart-strategy.exponential-delay.max-backoff",
    timedelta,
    timedelta(minutes=1),
    "Longest pause before a restart.",
)
EXPONENTIAL_MULTIPLIER: Final = ConfigOption(
    "restart-strategy.exponential-delay.backoff-multiplier",
    float,
    1.5,
    "Factor by which the pause grows with every restart.",
    least=1.0,
)
EXPONENTIAL_RESET: Final = ConfigOption(
    "restart-strategy.exponential-delay.reset-backoff-threshold",
    timedelta,
    timedelta(hours=1),
    "Time without a failure after which the pause is reset to the initial one.",
)
EXPONENTIAL_JITTER: Final = ConfigOption(
    "restart-strategy.exponential-delay.jitter-factor",
    float,
    0.1,
    "Share of the pause by which it varies at random, at most 1.",
)
EXPONENTIAL_ATTEMPTS: Final = ConfigOption(
    "restart-strategy.exponential-delay.attempts-before-reset-backoff",
    int,
    2**31 - 1,
    "Number of consecutive restarts after which a failure is final.",
)


class RestartStrategy(Protocol):
    """Decides after each failure whether and when to restart."""

    name: str

    def failure(self, monotonic_ms: float) -> float | None:
        """Return the ms to wait before the restart, or None if this failure is final."""
        ...


class NoRestart:
    """Never restarts: the first failure is final."""

    name = "none"

    def failure(self, monotonic_ms: float) -> float | None:
        return None


class FixedDelayRestart:
    """Restarts a fixed number of times, which is never reset."""

    name = "fixed-delay"

    def __init__(self, attempts: int, delay_ms: float) -> None:
        self._left = attempts
        self._delay_ms = delay_ms

    def failure(self, monotonic_ms: float) -> float | None:
        if self._left <= 0:
            return None
        self._left -= 1
        return self._delay_ms


class FailureRateRestart:
    """Restarts while at most `max_failures` happen within `interval_ms`."""

    name = "failure-rate"

    def __init__(self, max_failures: int, interval_ms: float, delay_ms: float) -> None:
        self._max_failures = max_failures
        self._interval_ms = interval_ms
        self._delay_ms = delay_ms
        self._failures_ms: list[float] = []

    def failure(self, monotonic_ms: float) -> float | None:
        self._failures_ms = [*self._failures_ms, monotonic_ms][-(self._max_failures + 1) :]
        if len(self._failures_ms) <= self._max_failures:
            return self._delay_ms
        return None if monotonic_ms - self._failures_ms[0] < self._interval_ms else self._delay_ms


class ExponentialDelayRestart:
    """Restarts after growing pauses; a failure before the planned restart belongs to the same restart.

    Pause before restart n (from 0): initial * multiplier^n, at most max, varied by the jitter.
    """

    name = "exponential-delay"

    def __init__(
        self,
        *,
        initial_ms: float,
        max_ms: float,
        multiplier: float,
        reset_after_ms: float,
        jitter_factor: float,
        max_attempts: int,
        random: SeededRandom,
    ) -> None:
        self._initial_ms = initial_ms
        self._max_ms = max_ms
        self._multiplier = multiplier
        self._reset_after_ms = reset_after_ms
        self._jitter_factor = jitter_factor
        self._max_attempts = max_attempts
        self._random = random
        self._attempt = 0
        self._restart_at_ms = float("-inf")

    def failure(self, monotonic_ms: float) -> float | None:
        if monotonic_ms < self._restart_at_ms:
            return self._restart_at_ms - monotonic_ms
        if monotonic_ms - self._restart_at_ms >= self._reset_after_ms:
            self._attempt = 0
        if self._attempt >= self._max_attempts:
            return None
        pause_ms = self._initial_ms
        for _ in range(self._attempt):
            pause_ms *= self._multiplier
            if pause_ms >= self._max_ms:
                break
        pause_ms *= 1 + self._random.uniform(-self._jitter_factor, self._jitter_factor)
        pause_ms = min(pause_ms, self._max_ms)
        self._attempt += 1
        self._restart_at_ms = monotonic_ms + pause_ms
        return pause_ms


def describe_restart_strategy(settings: Settings) -> str:
    """Return Flink's sentence for the strategy that a job's own settings name.

    Source: Flink RestartStrategyDescriptionUtils.
    """
    if not settings.is_set(RESTART_STRATEGY):
        return "Cluster level default restart strategy"
    match settings.get_option(RESTART_STRATEGY):
        case "none" | "off" | "disable":
            return "Restart deactivated."
        case "fixed-delay" | "fixeddelay":
            return (
                f"Restart with fixed delay ({_iso_text(settings.get_option(FIXED_DELAY_DELAY))}). "
                f"#{settings.get_option(FIXED_DELAY_ATTEMPTS)} restart attempts."
            )
        case "failure-rate" | "failurerate":
            return (
                f"Failure rate restart with maximum of {settings.get_option(FAILURE_RATE_MAX)} failures within "
                f"interval {_iso_text(settings.get_option(FAILURE_RATE_INTERVAL))} and fixed delay "
                f"{_iso_text(settings.get_option(FAILURE_RATE_DELAY))}."
            )
        case _:
            return (
                f"Restart with exponential delay: starting at {_iso_text(settings.get_option(EXPONENTIAL_INITIAL))}, "
                f"increasing by {settings.get_option(EXPONENTIAL_MULTIPLIER):f}, with maximum "
                f"{_iso_text(settings.get_option(EXPONENTIAL_MAX))}. Delay resets after "
                f"{_iso_text(settings.get_option(EXPONENTIAL_RESET))} with jitter "
                f"{settings.get_option(EXPONENTIAL_JITTER):f}"
            )


def _iso_text(duration: timedelta) -> str:
    """Return a duration in Java's format, such as `PT1M30S` or `PT0.1S`."""
    minutes, seconds = divmod(duration.total_seconds(), 60)
    hours, minutes = divmod(int(minutes), 60)
    parts = ((f"{hours}", "H"), (f"{minutes}", "M"), (f"{round(seconds, 9):g}", "S"))
    text = "".join(f"{amount}{unit}" for amount, unit in parts if amount != "0")
    return f"PT{text or '0S'}"


def create_restart_strategy(settings: Settings, random: SeededRandom) -> RestartStrategy:
    """Make the strategy that the job's settings name. ConfigurationError for an unknown name."""
    takes_checkpoints = settings.duration_ms(INTERVAL) > 0
    default = ExponentialDelayRestart.name if takes_checkpoints else NoRestart.name
    kind = settings.get_option(RESTART_STRATEGY) or default
    match kind:
        case "none" | "off" | "disable":
            return NoRestart()
        case "fixed-delay" | "fixeddelay":
            return FixedDelayRestart(
                settings.get_option(FIXED_DELAY_ATTEMPTS),
                settings.duration_ms(FIXED_DELAY_DELAY),
            )
        case "failure-rate" | "failurerate":
            return FailureRateRestart(
                settings.get_option(FAILURE_RATE_MAX),
                settings.duration_ms(FAILURE_RATE_INTERVAL),
                settings.duration_ms(FAILURE_RATE_DELAY),
            )
        case _:  # exponential-delay: the option has no other value
            jitter_factor = settings.get_option(EXPONENTIAL_JITTER)
            if jitter_factor > 1:
                raise ConfigurationError(
                    EXPONENTIAL_JITTER.key, jitter_factor, "it must be at most 1"
                )
            return ExponentialDelayRestart(
                initial_ms=settings.duration_ms(EXPONENTIAL_INITIAL),
                max_ms=settings.duration_ms(EXPONENTIAL_MAX),
                multiplier=settings.get_option(EXPONENTIAL_MULTIPLIER),
                reset_after_ms=settings.duration_ms(EXPONENTIAL_RESET),
                jitter_factor=jitter_factor,
                max_attempts=settings.get_option(EXPONENTIAL_ATTEMPTS),
                random=random,
            )
