"""One MiniCluster for the programs of a module, and environments that run on it and leave nothing behind."""

from collections.abc import Iterator
from contextlib import suppress

import pytest

from headrace import StreamExecutionEnvironment
from headrace.api.client.job_client import JobClient
from headrace.api.executors import set_active_executor
from headrace.cluster.minicluster import MiniCluster
from headrace.core.ids import ClusterDataSetId
from headrace.gateways.errors import JobAlreadyEndedError
from headrace.gateways.messages import DataSetInfo
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

    def known_parallelism(self) -> int:
        return self.default_parallelism()

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
        cancel_all(cluster)


def cancel_all(cluster: MiniCluster) -> None:
    """End what a test left running, as where it failed: the next one waits for its slots."""
    dispatcher, call = cluster.handle.dispatcher, cluster.handle.call
    for job in call(dispatcher.list_jobs()):
        if not job.status.is_globally_terminal_state():
            with suppress(JobAlreadyEndedError):
                call(dispatcher.cancel_job(job.job_id))
            cluster.await_result(job.job_id)
