"""Options that say which TaskManagers there are, and which of them serves a job; the TaskManagers are real ones."""

from typing import Final

import pytest

from headrace.cluster.minicluster import MiniCluster
from headrace.core.ids import JobId, ResourceId
from headrace.core.lifecycle import ExecutionState
from headrace.core.randomness import SeededRandom
from headrace.graph.job_graph import JobGraph
from testkit.simulation.simulated_job import counting_job
from testkit.waiting import wait_until

RANDOM: Final = SeededRandom(13)


def long_job(parallelism: int) -> JobGraph:
    return counting_job(
        JobId.generate(RANDOM),
        "endless",
        count=10**6,
        interval_ms=100,
        parallelism=parallelism,
        settings={},
    )


def used_slots(mini: MiniCluster) -> dict[ResourceId, int]:
    """Return the TaskManagers that have registered, with the number of their slots that are in use."""
    found = mini.handle.call(mini.handle.resource_manager.request_resource_overview(), 10)
    return {
        each.resource_id: sum(slot.job_id is not None for slot in each.slots)
        for each in found.task_managers
    }


def await_running(mini: MiniCluster, graph: JobGraph) -> None:
    def runs() -> bool:
        request = mini.handle.dispatcher.request_job_details(graph.job_id)
        details = mini.handle.call(request, 10)
        states = {task.state for vertex in details.vertices for task in vertex.subtasks}
        return states == {ExecutionState.RUNNING}

    wait_until(runs, 30, "all tasks run")


@pytest.mark.parametrize(("mode", "used"), [("NONE", [0, 2]), ("SLOTS", [1, 1])])
def test_slots_are_spread_out_over_task_managers_only_where_that_is_wanted(
    mode: str, used: list[int]
) -> None:
    graph = long_job(2)
    settings = {"taskmanager.load-balance.mode": mode}
    with MiniCluster(
        task_manager_count=2, slots_per_task_manager=2, is_fixed=True, settings=settings
    ) as mini:
        wait_until(lambda: len(used_slots(mini)) == 2, 30, "all TaskManagers")
        mini.submit(graph)
        await_running(mini, graph)
        assert sorted(used_slots(mini).values()) == used


def test_a_redundant_task_manager_waits_beside_a_job_and_none_without_one() -> None:
    graph = long_job(1)
    settings = {"slotmanager.redundant-taskmanager-num": "1"}
    with MiniCluster(task_manager_count=3, settings=settings) as mini:
        assert used_slots(mini) == {}
        mini.submit(graph)
        await_running(mini, graph)
        wait_until(lambda: sorted(used_slots(mini).values()) == [0, 1], 30, "one more")
