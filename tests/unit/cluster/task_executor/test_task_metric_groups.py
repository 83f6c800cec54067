"""Metrics of tasks in the registry of their TaskManager, from their start to their end; and those of the process."""

from collections.abc import Iterator, Sequence

import pytest

from headrace.cluster.task_executor.options import TaskManagerConfiguration
from headrace.cluster.task_executor.task_manager_runner import LocalTaskManager
from headrace.core.config import Settings
from headrace.core.ids import OperatorId, ResourceId
from headrace.core.process.state_memory import StateMemory
from headrace.gateways.errors import UnknownAttemptError
from headrace.metrics.cluster_names import TASK_RECORDS_IN, TASK_RECORDS_OUT, TASKS_RUNNING
from headrace.metrics.groups import MetricSample, samples_of
from headrace.metrics.readings import GroupReading
from headrace.metrics.scopes import GroupKind
from headrace.task.metrics import TaskSamples
from tests.unit.cluster.cluster_samples import attempt
from tests.unit.cluster.task_executor.task_executor_world import JM_ID, PROCESS_METRICS, World


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield world
    world.close()


def groups(world: World) -> Sequence[GroupReading]:
    return world.registry.read().groups


def values(reading: GroupReading) -> dict[str, float]:
    return {sample.name: sample.value for sample in reading.samples}


def test_a_task_and_its_operators_are_registered_when_it_is_submitted(world: World) -> None:
    world.request_slot()
    world.submit().metrics = {"numRecordsIn": 5.0}
    task, operator = groups(world)
    assert (task.kind, values(task)) == (GroupKind.TASK, {"numRecordsIn": 5})
    assert task.scope == ("worker", "taskmanager", "tm-1", "a job", "vertex 1", "0")
    assert task.variables["task_attempt_id"] == str(attempt(0))
    assert (operator.kind, operator.variables["operator_name"]) == (
        GroupKind.OPERATOR,
        "operator 1",
    )


def test_figures_of_the_network_stand_under_flinks_names_too(world: World) -> None:
    world.request_slot()
    world.submit().metrics = {"inPoolUsage": 0.5, "output.1.maxQueueLen": 7.0, "numRecordsIn": 5.0}
    task, _ = groups(world)
    assert {".".join((*sample.path, sample.name)): sample.value for sample in task.samples} == {
        "inPoolUsage": 0.5,
        "Shuffle.Netty.Input.Buffers.inPoolUsage": 0.5,
        "output.1.maxQueueLen": 7,
        "Shuffle.Netty.Output.1.maxQueueLen": 7,
        "numRecordsIn": 5,
    }


def test_samples_of_an_operator_stand_in_its_group(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.request_slot()
    task = world.submit()
    operator_id = OperatorId((1).to_bytes(16, "big"))
    seen: list[MetricSample] = samples_of({"seen": 3.0})
    monkeypatch.setattr(task, "metric_samples", lambda: TaskSamples([], {operator_id: seen}))
    own, operator = groups(world)
    assert (values(own), values(operator)) == ({}, {"seen": 3})


def test_a_task_that_has_ended_is_read_no_more(world: World) -> None:
    world.request_slot()
    world.submit()
    world.ask(world.gateway.cancel_task(attempt(0), JM_ID))
    world.run_for(100)
    assert groups(world) == []


def test_nor_is_one_whose_end_its_job_master_does_not_want_to_hear(world: World) -> None:
    world.job_master.script.answers["update_task_execution_state"] = UnknownAttemptError("0")
    world.request_slot()
    world.submit()
    world.ask(world.gateway.cancel_task(attempt(0), JM_ID))
    world.run_for(1_000)
    assert groups(world) == []


def test_metrics_of_the_process_are_those_of_its_services(world: World) -> None:
    assert world.ask(world.gateway.request_process_metrics()) == PROCESS_METRICS


def test_what_a_task_has_done_counts_after_its_end(world: World) -> None:
    def of_all() -> tuple[float, ...]:
        found = world.executor.task_metrics()
        return tuple(
            found[name.name] for name in (TASKS_RUNNING, TASK_RECORDS_IN, TASK_RECORDS_OUT)
        )

    assert of_all() == (0, 0, 0)
    world.request_slot()
    world.submit().metrics = {"numRecordsIn": 5.0, "numRecordsOut": 3.0, "first.numRecordsIn": 5.0}
    assert of_all() == (1, 5, 3)
    world.ask(world.gateway.cancel_task(attempt(0), JM_ID))
    world.run_for(100)
    assert of_all() == (0, 5, 3)


def test_the_process_of_a_task_manager_tells_of_its_network_memory_too() -> None:
    configuration = TaskManagerConfiguration(
        resource_id=ResourceId("tm"),
        leader_retrieval_address="",
        secret=bytes(32),
        settings={"taskmanager.memory.process.size": "1g"},
    )
    found = LocalTaskManager(configuration).process_metrics()
    assert found["Status.JVM.Memory.Heap.Max"] == 1 << 30
    assert found["Status.Shuffle.Netty.TotalMemorySegments"] > 0


def test_columnar_state_is_used_managed_memory() -> None:
    settings = {"taskmanager.memory.process.size": "2g", "taskmanager.memory.managed.size": "700m"}
    task_manager = LocalTaskManager(
        TaskManagerConfiguration(
            resource_id=ResourceId("tm"),
            leader_retrieval_address="",
            secret=bytes(32),
            settings=settings,
        )
    )
    before = task_manager.process_metrics()
    assert before["Status.Flink.Memory.Managed.Total"] == 700 << 20
    account = StateMemory("ranking", "ranked-rows", Settings(settings))
    account.grow(300 << 20)
    used = task_manager.process_metrics()["Status.Flink.Memory.Managed.Used"]
    account.close()
    assert used - before["Status.Flink.Memory.Managed.Used"] == 300 << 20
