"""One MiniCluster for all programs of this folder, and environments that run on it."""

from collections.abc import Iterator

import pytest

from headrace import StreamExecutionEnvironment
from headrace.api.executors import set_active_executor
from headrace.api.job_client import JobClient
from headrace.cluster.minicluster import MiniCluster
from headrace.core.ids import ClusterDataSetId
from headrace.gateways.cluster_partitions import DataSetInfo
from headrace.graph.job_graph import JobGraph


class MiniClusterExecutor:
    name = "minicluster"

    def __init__(self, cluster: MiniCluster) -> None:
        self._cluster = cluster

    def submit(self, job_graph: JobGraph) -> JobClient:
        handle = self._cluster.submit(job_graph)
        return JobClient(job_graph.job_id, handle.dispatcher, handle.loop)

    def default_parallelism(self) -> int:
        return self._cluster.slot_count

    def list_data_sets(self) -> tuple[DataSetInfo, ...]:
        return self._cluster.handle.list_data_sets()

    def release_data_set(self, data_set: ClusterDataSetId) -> None:
        self._cluster.handle.release_data_set(data_set)

    def close(self) -> None:
        pass


@pytest.fixture(scope="module")
def cluster() -> Iterator[MiniCluster]:
    with MiniCluster(task_manager_count=2, slots_per_task_manager=1) as one:
        yield one


@pytest.fixture
def env(cluster: MiniCluster) -> Iterator[StreamExecutionEnvironment]:
    set_active_executor(MiniClusterExecutor(cluster))
    try:
        yield StreamExecutionEnvironment.get_execution_environment()
    finally:
        set_active_executor(None)
