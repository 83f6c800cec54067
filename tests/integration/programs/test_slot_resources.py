"""Slot sharing groups with resources: their slots are cut in that size, or the job fails at once and says why."""

import threading
from collections.abc import Iterator

import pytest

from headrace import StreamExecutionEnvironment, Types
from headrace.api.executors import set_active_executor
from headrace.cluster.minicluster import MiniCluster
from headrace.core.errors import JobExecutionError
from headrace.datastream import SlotSharingGroup
from headrace.gateways.resource_manager import TaskManagerInfo
from testkit.waiting import wait_until
from tests.integration.programs.conftest import MiniClusterExecutor, cancel_all

pytestmark = pytest.mark.integration

MB = 1 << 20
SETTINGS = {"taskmanager.cpu.cores": "2", "taskmanager.memory.process.size": "1g"}
MAY_RETURN = threading.Event()


def hold(number: int) -> int:
    assert MAY_RETURN.wait(60)
    return number


def group(name: str, cpu_cores: float, heap_mb: int = 10) -> SlotSharingGroup:
    builder = SlotSharingGroup.builder(name).set_cpu_cores(cpu_cores)
    return builder.set_task_heap_memory_mb(heap_mb).build()


@pytest.fixture(scope="module")
def cluster() -> Iterator[MiniCluster]:
    with MiniCluster(task_manager_count=1, slots_per_task_manager=2, settings=SETTINGS) as one:
        yield one


@pytest.fixture
def env(cluster: MiniCluster) -> Iterator[StreamExecutionEnvironment]:
    set_active_executor(MiniClusterExecutor(cluster))
    try:
        yield StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
    finally:
        MAY_RETURN.set()
        set_active_executor(None)
        cancel_all(cluster)


def task_manager(cluster: MiniCluster) -> TaskManagerInfo:
    handle = cluster.handle
    [found] = handle.call(handle.resource_manager.request_resource_overview()).task_managers
    return found


def slots_in_use(cluster: MiniCluster) -> int:
    handle = cluster.handle
    found = handle.call(handle.resource_manager.request_resource_overview()).task_managers
    return sum(slot.job_id is not None for each in found for slot in each.slots)


def test_slots_of_groups_are_cut_from_one_task_manager_and_given_back(
    cluster: MiniCluster, env: StreamExecutionEnvironment
) -> None:
    MAY_RETURN.clear()
    small, large = group("small", 0.25), group("large", 0.75, 64)
    numbers = env.from_collection([1, 2], Types.LONG()).slot_sharing_group(small)
    held = numbers.map(hold, output_type=Types.LONG()).slot_sharing_group(large)
    # The third group sets nothing, and has a slot of the default size: one of two cores.
    held.map(lambda n: n, output_type=Types.LONG()).slot_sharing_group("default").print()
    client = env.execute_async("sized")
    wait_until(lambda: slots_in_use(cluster) == 3, 30, "the job has its slots")
    found = task_manager(cluster)
    sizes = sorted(
        (slot.profile.cpu_cores, slot.profile.task_heap_bytes // MB) for slot in found.slots
    )
    assert found.total.cpu_cores == 2
    assert found.free_slot_count == 0
    assert sizes == [
        (0.25, 10),
        (0.75, 64),
        (1.0, found.total.task_heap_bytes // 2 // MB),
    ]
    assert abs(found.free.cpu_cores) < 1e-6
    assert found.memory_parts is not None and found.memory_parts.process_bytes == 1 << 30
    MAY_RETURN.set()
    client.get_job_execution_result().result(30)
    wait_until(lambda: task_manager(cluster).free_slot_count == 2, 30, "the slots are free")
    assert task_manager(cluster).free == task_manager(cluster).total


def test_a_group_that_asks_for_more_than_any_task_manager_has_fails_at_once(
    env: StreamExecutionEnvironment,
) -> None:
    numbers = env.from_collection([1, 2], Types.LONG())
    numbers.map(hold, output_type=Types.LONG()).slot_sharing_group(group("models", 4)).print()
    with pytest.raises(JobExecutionError) as caught:
        env.execute("too large")
    assert (
        "slot sharing group 'models' requests 4 core(s) and 10 mb of task heap memory for each slot, which no "
        "TaskManager has: a TaskManager has 2 core(s); all TaskManagers of this cluster have the same size"
    ) in str(caught.value).split("\n", 1)[0]
