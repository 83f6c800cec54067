"""PyFlink's `common.restart_strategy`: re-exports."""

from headrace.api.settings.restart_strategy_configuration import (
    FailureRateRestartStrategyConfiguration,
    FallbackRestartStrategyConfiguration,
    FixedDelayRestartStrategyConfiguration,
    NoRestartStrategyConfiguration,
    RestartStrategies,
    RestartStrategyConfiguration,
)

__all__ = [
    "RestartStrategies",
    "RestartStrategyConfiguration",
    "NoRestartStrategyConfiguration",
    "FallbackRestartStrategyConfiguration",
    "FixedDelayRestartStrategyConfiguration",
    "FailureRateRestartStrategyConfiguration",
]
