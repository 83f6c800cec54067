"""What a job's settings say of its checkpoints, and what does not go together."""

import pytest

from headrace.cluster.job_master.checkpointing.rules import CheckpointRules
from headrace.core.config import Settings
from headrace.core.errors import ConfigurationError

P = "execution.checkpointing."


def rules(**settings: str) -> CheckpointRules:
    return CheckpointRules.from_settings(
        Settings({P + key.replace("_", "-"): value for key, value in settings.items()})
    )


def test_during_a_backlog_the_interval_is_as_ever_unless_said_otherwise() -> None:
    assert rules(interval="10 s").backlog_period_ms == 10_000
    assert rules(interval="10 s", interval_during_backlog="1 min").backlog_period_ms == 60_000
    assert rules(interval="10 s", interval_during_backlog="0 ms").backlog_period_ms is None
    longer = rules(interval="10 s", interval_during_backlog="20 s", min_pause="30 s")
    assert longer.backlog_period_ms == 30_000


def test_an_interval_during_backlogs_that_is_shorter_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="it must be 0, or no shorter"):
        rules(interval="10 s", interval_during_backlog="5 s")
