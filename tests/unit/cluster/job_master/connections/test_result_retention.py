"""ResultPromotion: all parts of a data set are kept beyond the job, or none."""

import asyncio
from typing import Any

import pytest

from headrace.cluster.job_master.connections.cached_results import ResultPromotion
from headrace.core.clock import ManualClock
from headrace.core.config import Settings
from headrace.core.ids import JobMasterId, ResourceId
from headrace.core.randomness import SeededRandom
from headrace.gateways.errors import StaleLeaderError
from headrace.gateways.messages import ClusterPartition
from headrace.gateways.task_executor import TaskExecutorGateway
from headrace.rpc.loopback import LoopbackNetwork
from testkit.scripted_gateways import end_processes, start_scripted
from testkit.simulation.virtual_loop import VirtualLoop
from tests.unit.cluster.cluster_partition_samples import DATA_SET, part, report
from tests.unit.cluster.cluster_samples import JOB, TM_1, TM_2

PROMOTED: dict[ResourceId, tuple[ClusterPartition, ...]] = {TM_1: (part(0),), TM_2: (part(1),)}


def never(*_: Any) -> "asyncio.Future[None]":
    return asyncio.get_running_loop().create_future()


def released(
    first_answer: Any, promoted: dict[ResourceId, tuple[ClusterPartition, ...]]
) -> list[int]:
    """How often each of two TaskManagers is told to release, where the first answers so (None: it is gone)."""
    clock = ManualClock()
    loop = VirtualLoop(clock)
    network = LoopbackNetwork(clock, SeededRandom(1), loop=loop, settings=Settings())
    master = network.create_service("master")
    gateways: dict[ResourceId, TaskExecutorGateway] = {}
    scripts = []
    for name, answer in ((TM_1, first_answer), (TM_2, report(1, part(1)))):
        endpoint = start_scripted(
            network.create_service(str(name)),
            "tm",
            TaskExecutorGateway,
            promote_partitions=answer,
            release_cluster_partitions=report(2),
        )
        scripts.append(endpoint.script)
        if answer is not None:
            gateways[name] = loop.run_until(master.connect(endpoint.address, TaskExecutorGateway))
    loop.run_until(ResultPromotion(JOB, JobMasterId(b"m" * 16), gateways).promote(promoted))
    told = [each.called("release_cluster_partitions") for each in scripts]
    end_processes(network, loop)
    assert all(each == ((DATA_SET,),) for calls in told for each in calls)
    return [len(calls) for calls in told]


def test_what_all_keep_is_not_released() -> None:
    assert released(report(1, part(0)), PROMOTED) == [0, 0]


@pytest.mark.parametrize(
    ("answer", "first_count"),
    [(StaleLeaderError("another one leads"), 1), (report(0), 1), (never, 1), (None, 0)],
    ids=["refused", "not there", "silent", "gone"],
)
def test_where_one_does_not_keep_its_part_nobody_keeps_the_others(
    answer: Any, first_count: int
) -> None:
    assert released(answer, PROMOTED) == [first_count, 1]
