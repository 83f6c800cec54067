"""Settings of a job's checkpoints, and those that do not go together."""

import pytest

from headrace.cluster.job_master.checkpointing.protocol.coordinator_configuration import (
    CheckpointCoordinatorConfiguration,
)
from headrace.core.barriers import NEVER_UNALIGNED, AlignmentMode
from headrace.core.config import Settings
from headrace.core.errors import ConfigurationError

P = "execution.checkpointing."


def configuration(**settings: str) -> CheckpointCoordinatorConfiguration:
    return CheckpointCoordinatorConfiguration.from_settings(
        Settings({P + key.replace("_", "-"): value for key, value in settings.items()})
    )


def test_during_a_backlog_the_interval_is_as_ever_unless_said_otherwise() -> None:
    assert configuration(interval="10 s").backlog_period_ms == 10_000
    assert (
        configuration(interval="10 s", interval_during_backlog="1 min").backlog_period_ms == 60_000
    )
    assert configuration(interval="10 s", interval_during_backlog="0 ms").backlog_period_ms is None
    longer = configuration(interval="10 s", interval_during_backlog="20 s", min_pause="30 s")
    assert longer.backlog_period_ms == 30_000


def test_an_interval_during_backlogs_that_is_shorter_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="it must be 0, or at least"):
        configuration(interval="10 s", interval_during_backlog="5 s")


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"mode": "AT_LEAST_ONCE"}, "barriers overtake only with .*EXACTLY_ONCE"),
        ({"max_concurrent_checkpoints": "2"}, "taken one at a time"),
    ],
)
def test_what_does_not_go_with_unaligned_checkpoints_is_refused(
    settings: dict[str, str], text: str
) -> None:
    assert configuration(interval="10 s", **settings).alignment is not AlignmentMode.UNALIGNED
    with pytest.raises(ConfigurationError, match=text):
        configuration(**{"interval": "10 s", "unaligned.enabled": "true", **settings})


@pytest.mark.parametrize(
    ("settings", "wanted"),
    [
        ({}, (AlignmentMode.ALIGNED, NEVER_UNALIGNED)),
        ({"mode": "AT_LEAST_ONCE"}, (AlignmentMode.AT_LEAST_ONCE, NEVER_UNALIGNED)),
        ({"unaligned.enabled": "true"}, (AlignmentMode.UNALIGNED, NEVER_UNALIGNED)),
        (
            {"unaligned.enabled": "true", "aligned_checkpoint_timeout": "30 s"},
            (AlignmentMode.ALIGNED, 30_000),
        ),
        ({"aligned_checkpoint_timeout": "30 s"}, (AlignmentMode.ALIGNED, NEVER_UNALIGNED)),
    ],
)
def test_how_barriers_go(settings: dict[str, str], wanted: tuple[AlignmentMode, int]) -> None:
    found = configuration(interval="10 s", **settings)
    assert (found.alignment, found.aligned_timeout_ms) == wanted


def test_an_interval_or_a_timeout_too_short_to_take_a_checkpoint_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"interval' .* at least 10 ms or 0 ms$"):
        configuration(interval="9 ms")
    with pytest.raises(ConfigurationError, match=r"timeout' .* at least 10 ms$"):
        configuration(interval="10 s", timeout="0 s")
    shortest = configuration(interval="10 ms", timeout="10 ms")
    assert (shortest.interval_ms, shortest.timeout_ms) == (10, 10)
    assert configuration(interval="0").interval_ms is None
    assert configuration(interval="-1").interval_ms is None


def test_checkpoints_are_no_closer_together_than_their_pause() -> None:
    assert configuration(interval="1 s", min_pause="5 s").period_ms == 5_000
    assert configuration(interval="1 s", min_pause="400 d").min_pause_ms == 365 * 86_400_000
    with pytest.raises(ConfigurationError, match="at least 1"):
        configuration(interval="1 s", max_concurrent_checkpoints="0")
