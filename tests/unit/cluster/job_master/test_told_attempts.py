"""Whoever hosts the cluster is told of each attempt of a job."""

from headrace.core.lifecycle import ExecutionState
from headrace.gateways.messages import Acknowledge, ErrorInfo, ExecutionReport
from tests.unit.cluster.cluster_samples import JOB, attempt
from tests.unit.cluster.job_master.job_master_world import World


def test_the_first_attempt_and_each_restart_are_told_with_their_number() -> None:
    settings = {
        "restart-strategy.type": "fixed-delay",
        "restart-strategy.fixed-delay.delay": "1 s",
    }
    world = World(settings, submit_task=Acknowledge(), cancel_task=Acknowledge())
    world.loop.run_for(100)
    assert world.attempts == [(JOB, 1)]
    failed = ExecutionReport(
        attempt(0),
        ExecutionState.FAILED,
        ErrorInfo("Lost", "it is gone", "INTERNAL", recoverable=True),
    )
    world.loop.run_until(world.gateway.update_task_execution_state(failed))
    world.loop.run_for(10)
    assert world.attempts == [(JOB, 1), (JOB, 2)]
    world.close()
