"""Spark keeps for the subtasks of a stage what their group, or else the settings, say; what it cannot is refused."""

import pytest

from headrace.api.environment import StreamExecutionEnvironment
from headrace.api.settings.slot_sharing_group import SlotSharingGroup
from headrace.core.config import Settings
from headrace.core.errors import ProgramError
from headrace.graph.job_graph import JobGraph, JobVertex
from headrace.spark.batch.stage_resources import StageResources
from headrace.spark.master import parse_master
from headrace.spark.workers.worker_sizes import WorkerSizes
from tests.unit.api.recording import recording

GPU = "spark.executor.resource.gpu"
FIXED = {"spark.executor.cores": "4", f"{GPU}.amount": "2", f"{GPU}.discoveryScript": "/find"}
DYNAMIC = {**FIXED, "spark.dynamicAllocation.enabled": "true"}
STANDALONE = "spark://host:7077"


def resources(
    master: str, conf: dict[str, str], external: tuple[tuple[str, int], ...] = ()
) -> StageResources:
    settings = Settings({"taskmanager.memory.process.size": "1g"})
    sizes = WorkerSizes(settings, {"spark.master": master, **conf}, parse_master(master, 2))
    return StageResources(sizes, external)


def graph_with(gpus: int) -> JobGraph:
    """A source in the default group, and a function in one that requests GPUs, memory and a core."""
    builder = SlotSharingGroup.builder("models").set_cpu_cores(1).set_task_heap_memory_mb(3000)
    models = (builder.set_external_resource("gpu", gpus) if gpus else builder).build()
    with recording() as executor:
        env = StreamExecutionEnvironment.get_execution_environment()
        env.from_collection([1]).rebalance().map(str).slot_sharing_group(models).print()
        env.execute_async()
        return executor.last


def vertices(graph: JobGraph) -> tuple[JobVertex, JobVertex]:
    """The one of the default group, and the one of the other."""
    usual, own = sorted(graph.vertices, key=lambda one: one.slot_sharing_group)
    assert (usual.slot_sharing_group, own.slot_sharing_group) == ("default", "models")
    return usual, own


def test_a_stage_takes_what_its_group_asks_for_and_else_what_the_settings_say() -> None:
    graph = graph_with(2)
    usual, own = vertices(graph)
    without = resources(STANDALONE, FIXED)
    assert without.profile_of(graph, usual) is None
    assert without.profile_of(graph, own).taskResources["gpu"].amount == 2
    found = resources(STANDALONE, FIXED, (("gpu", 1),))
    assert found.profile_of(graph, usual).taskResources["gpu"].amount == 1
    assert found.profile_of(graph, own).taskResources["gpu"].amount == 2
    assert found.profile_of(graph, own) is found.profile_of(graph, own), "Spark never forgets one"


def test_stages_of_two_sizes_that_are_read_together_are_parted() -> None:
    graph = graph_with(2)
    usual, own = vertices(graph)
    found = resources(STANDALONE, FIXED)
    assert found.stands_alone(graph, own, [usual, own])
    assert not found.stands_alone(graph, own, [own])
    assert not found.stands_alone(graph, usual, [usual, own]), "it takes what any task has"


def test_memory_of_a_group_comes_with_executors_that_spark_starts_on_demand() -> None:
    graph = graph_with(1)
    usual, own = vertices(graph)
    fixed, dynamic = resources(STANDALONE, FIXED), resources(STANDALONE, DYNAMIC)
    assert not fixed.profile_of(graph, own).executorResources
    assert fixed.settings_of(graph, own) == dynamic.settings_of(graph, usual) == {}
    assert fixed.idle(graph).startswith("memory of slot sharing groups (models) have no effect in")
    requested = dynamic.profile_of(graph, own).executorResources
    assert requested["memory"].amount > 3000 and requested["gpu"].amount == 1
    # Its Python worker may hold what was asked for, and not only what the usual one may.
    settings = dynamic.settings_of(graph, own)
    assert int(settings["headrace.taskmanager.memory.limit"]) > 3000 << 20
    assert dynamic.idle(graph) == ""


@pytest.mark.parametrize(
    ("master", "gpus", "reason"),
    [
        (STANDALONE, 3, f"an executor has 2: set {GPU}.amount to 3 or more"),
        ("local[2]", 1, "Spark has no resource profiles"),
    ],
)
def test_what_no_executor_has_is_refused_by_name(master: str, gpus: int, reason: str) -> None:
    with pytest.raises(ProgramError) as raised:
        resources(master, FIXED).refuse(graph_with(gpus))
    assert f"slot sharing group 'models' requests 1 core(s) and {gpus} gpu" in str(raised.value)
    assert reason in str(raised.value)


def test_cores_and_memory_are_not_refused_where_all_tasks_are_alike_but_named() -> None:
    graph, found = graph_with(0), resources("local[2]", {})
    found.refuse(graph)
    assert found.profile_of(graph, vertices(graph)[1]) is None
    assert "(models) have no effect in BATCH mode on one host" in found.idle(graph)
