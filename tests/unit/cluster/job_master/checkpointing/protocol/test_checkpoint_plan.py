"""CheckpointPlan: what is said where a checkpoint cannot be taken now."""

import pytest

from headrace.cluster.job_master.checkpointing.protocol.checkpoint_plan import (
    CheckpointRefusedError,
    calculate_plan,
)
from headrace.core.lifecycle import ExecutionState
from headrace.graph.execution_graph import expand
from tests.unit.cluster.cluster_samples import attempt, job_graph, vertex


def test_a_task_that_does_not_run_yet_is_named_with_what_to_do() -> None:
    graph = expand(job_graph((vertex(1, 2),)))
    attempts = {attempt(0): ExecutionState.RUNNING, attempt(1): ExecutionState.SCHEDULED}
    with pytest.raises(CheckpointRefusedError) as caught:
        calculate_plan(graph, attempts)
    assert str(caught.value) == (
        "not all required tasks are currently running: 'vertex 1 (2/2)' is SCHEDULED; try again when all of them run, "
        "as 'headrace top' and the dashboard show"
    )
