"""Batches that are worked off row by row, with mail and timers between: checkpoints of a whole cluster stay exact."""

from collections.abc import Callable

import pytest

from headrace.core.barriers import CheckpointBarrier
from headrace.task.paced_rows import Pace
from headrace.task.stream_task import SourceStreamTask
from testkit.simulation.cooperative_task_runner import CooperativeTaskRunner
from testkit.simulation.simulated_cluster import failure_note
from tests.simulation import scenario
from tests.simulation.seeds import seeds

SEEDS = seeds(8, first=60)


STEP_MS = 10.0


@pytest.fixture(autouse=True)
def _in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every batch passes in parts of two rows, each of which takes its time, as where each record takes long."""
    monkeypatch.setattr(Pace, "rows_now", lambda _, row_count: min(row_count, 2))
    run = CooperativeTaskRunner.__init__

    def slow(self: CooperativeTaskRunner, schedule: Callable[..., object]) -> None:
        run(self, lambda delay_ms, callback: schedule(max(delay_ms, STEP_MS), callback))

    monkeypatch.setattr(CooperativeTaskRunner, "__init__", slow)


@pytest.mark.parametrize("is_unaligned", [False, True])
@pytest.mark.parametrize("seed", SEEDS)
def test_no_row_of_a_batch_in_work_is_lost_or_doubled(
    seed: int, is_unaligned: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenario.take_checkpoints_often(monkeypatch, is_unaligned=is_unaligned)
    outcome = scenario.run_scenario(seed, takes_checkpoints=True)
    assert outcome.faults == (), failure_note(seed)("not as it must be")


@pytest.mark.slow
def test_some_checkpoints_are_triggered_in_the_midst_of_a_batch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    amid: list[bool] = []
    trigger = SourceStreamTask.trigger_checkpoint

    def watched(self: SourceStreamTask, barrier: CheckpointBarrier) -> None:
        amid.append(self.chain.is_amid_batch)
        trigger(self, barrier)

    monkeypatch.setattr(SourceStreamTask, "trigger_checkpoint", watched)
    scenario.take_checkpoints_often(monkeypatch, is_unaligned=False)
    for seed in range(60, 68):
        scenario.run_scenario(seed, takes_checkpoints=True)
    assert any(amid)
