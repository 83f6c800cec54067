"""A few runs of the chaos suite on real Spark; `make chaos` runs them all."""

from pathlib import Path

import pytest

from testkit.chaos.groups import GROUPS
from testkit.chaos.runner import ChaosRunner

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]


@pytest.mark.parametrize("group", ["smoke"])
def test_output_is_exact_although_task_managers_are_killed_and_a_checkpoint_is_damaged(
    tmp_path: Path, group: str
) -> None:
    chosen = GROUPS[group]
    with ChaosRunner(tmp_path / "runs", chosen.settings, chosen.job) as runner:
        outcomes = list(chosen.runs(runner, 1))
    assert [outcome for outcome in outcomes if not outcome.is_exact] == []
    assert sum(outcome.disturbance_count for outcome in outcomes) >= 6
    assert len(outcomes) == chosen.count(1) >= 6


def test_event_time_output_is_exact_although_a_task_manager_is_killed_while_it_restores(
    tmp_path: Path,
) -> None:
    chosen = GROUPS["events"]
    with ChaosRunner(tmp_path / "runs", chosen.settings, chosen.job) as runner:
        outcomes = list(chosen.runs(runner, 1, "mid restore"))
    assert [outcome for outcome in outcomes if not outcome.is_exact] == []
    assert [outcome.disturbance_count for outcome in outcomes] == [2]
