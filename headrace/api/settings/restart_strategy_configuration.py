"""Restart strategies as PyFlink's objects. They have no effect: the option `restart-strategy.type` decides."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from datetime import timedelta
from typing import ClassVar


class RestartStrategyConfiguration(ABC):
    """Base class of restart strategies, which decide whether and when a job restarts after a failure."""

    @abstractmethod
    def get_description(self) -> str:
        """Return a description of the strategy."""


@dataclass(frozen=True)
class NoRestartStrategyConfiguration(RestartStrategyConfiguration):
    """Ends the job at the first failure."""

    def get_description(self) -> str:
        return "Restart deactivated."


@dataclass(frozen=True)
class FallbackRestartStrategyConfiguration(RestartStrategyConfiguration):
    """Uses the restart strategy of the cluster's configuration."""

    def get_description(self) -> str:
        return "Cluster level default restart strategy"


@dataclass(frozen=True)
class FixedDelayRestartStrategyConfiguration(RestartStrategyConfiguration):
    """Restarts a job at most `restart_attempts` times, `delay_between_attempts` ms apart."""

    restart_attempts: int
    delay_between_attempts: int

    def get_description(self) -> str:
        return (
            f"Restart with fixed delay ({self.delay_between_attempts} ms). "
            f"#{self.restart_attempts} restart attempts."
        )

    def get_restart_attempts(self) -> int:
        return self.restart_attempts

    def get_delay_between_attempts_interval(self) -> timedelta:
        return timedelta(milliseconds=self.delay_between_attempts)


@dataclass(frozen=True)
class FailureRateRestartStrategyConfiguration(RestartStrategyConfiguration):
    """Restarts a job after at most `failure_rate` failures within `failure_interval` ms, `delay_interval` ms apart."""

    failure_rate: int
    failure_interval: int
    delay_interval: int

    def get_description(self) -> str:
        return (
            f"Failure rate restart with maximum of {self.failure_rate} failures within interval "
            f"{self.failure_interval} ms and fixed delay {self.delay_interval} ms."
        )

    def get_max_failure_rate(self) -> int:
        return self.failure_rate

    def get_failure_interval(self) -> timedelta:
        return timedelta(milliseconds=self.failure_interval)

    def get_delay_between_attempts_interval(self) -> timedelta:
        return timedelta(milliseconds=self.delay_interval)


class RestartStrategies:
    """Factory of restart strategies.

    Example:
        >>> RestartStrategies.fixed_delay_restart(3, 1000).get_description()
        'Restart with fixed delay (1000 ms). #3 restart attempts.'
    """

    # PyFlink programs find the classes in here.
    NoRestartStrategyConfiguration: ClassVar = NoRestartStrategyConfiguration
    FallbackRestartStrategyConfiguration: ClassVar = FallbackRestartStrategyConfiguration
    FixedDelayRestartStrategyConfiguration: ClassVar = FixedDelayRestartStrategyConfiguration
    FailureRateRestartStrategyConfiguration: ClassVar = FailureRateRestartStrategyConfiguration

    @staticmethod
    def no_restart() -> RestartStrategyConfiguration:
        return NoRestartStrategyConfiguration()

    @staticmethod
    def fall_back_restart() -> RestartStrategyConfiguration:
        return FallbackRestartStrategyConfiguration()

    @staticmethod
    def fixed_delay_restart(
        restart_attempts: int, delay_between_attempts: int
    ) -> RestartStrategyConfiguration:
        return FixedDelayRestartStrategyConfiguration(restart_attempts, delay_between_attempts)

    @staticmethod
    def failure_rate_restart(
        failure_rate: int, failure_interval: int, delay_interval: int
    ) -> RestartStrategyConfiguration:
        return FailureRateRestartStrategyConfiguration(
            failure_rate, failure_interval, delay_interval
        )
