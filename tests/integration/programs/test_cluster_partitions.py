"""Whole jobs with persistent results: what one leaves is read after its end, until somebody has it released."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from headrace import StreamExecutionEnvironment, Types, WatermarkStrategy
from headrace.cluster.minicluster import MiniCluster
from headrace.core.config import Settings
from headrace.core.ids import ClusterDataSetId, JobId
from headrace.core.lifecycle import JobStatus
from headrace.core.randomness import system_random
from headrace.core.shuffle_descriptors import ResultPartitionType, ShuffleDescriptor
from headrace.datastream.connectors.number_seq import NumberSequenceSource
from headrace.gateways.messages import DataSetInfo
from headrace.gateways.resource_manager import ResourceManagerGateway
from headrace.graph.job_graph import JobGraph
from headrace.graph.job_graph_generator import generate_job_graph
from headrace.graph.pipeline_options import BATCH_SHUFFLE_MODE
from testkit.waiting import wait_until
from tests.integration.network.shuffle_world import consume, new_task_manager
from tests.integration.programs.result_files import files
from tests.unit.network.exchange import SECRET, drain, values_of

COUNT = 1000
PARALLELISM = 2
WAIT_S = 30.0


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    made = tmp_path / "results"
    made.mkdir()
    return made


@pytest.fixture
def cluster(directory: Path, tmp_path: Path) -> Iterator[MiniCluster]:
    secret = tmp_path / "secret"
    secret.touch(0o600)
    secret.write_text(SECRET.hex())
    settings = {
        "io.tmp.dirs": str(directory),
        "headrace.security.secret-file": str(secret),
        "resourcemanager.taskmanager-timeout": "50 ms",
    }
    with MiniCluster(task_manager_count=PARALLELISM, settings=settings) as one:
        yield one
    assert files(directory) == [], "the cluster left something"


def persistent_graph(mapper: Callable[[int], int]) -> JobGraph:
    """Numbers that are spread over mappers: what is between them is to outlive the job."""
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(PARALLELISM)
    source = NumberSequenceSource(0, COUNT - 1)
    stream: Any = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")
    stream.map(lambda n: n, Types.LONG()).rebalance().map(mapper, Types.LONG()).print()
    settings = Settings({BATCH_SHUFFLE_MODE.key: "ALL_EXCHANGES_BLOCKING"})
    graph = generate_job_graph(env.get_stream_graph(), JobId.generate(system_random()), settings)
    kind = ResultPartitionType.BLOCKING_PERSISTENT
    edges = tuple(msgspec.structs.replace(edge, result_type=kind) for edge in graph.edges)
    return msgspec.structs.replace(graph, edges=edges)


def run(cluster: MiniCluster, graph: JobGraph, wanted: JobStatus = JobStatus.FINISHED) -> None:
    cluster.submit(graph)
    assert cluster.await_result(graph.job_id).status is wanted


def resource_manager(cluster: MiniCluster) -> ResourceManagerGateway:
    return cluster.handle.resource_manager


def data_sets(cluster: MiniCluster) -> tuple[DataSetInfo, ...]:
    return cluster.handle.call(resource_manager(cluster).list_data_sets(), WAIT_S)


def places_of(cluster: MiniCluster, data_set: ClusterDataSetId) -> tuple[ShuffleDescriptor, ...]:
    found = resource_manager(cluster).request_cluster_partitions(data_set)
    return cluster.handle.call(found, WAIT_S)


def read(places: tuple[ShuffleDescriptor, ...]) -> list[int]:
    """Every subpartition of every partition, as a TaskManager of another job would."""
    environment = new_task_manager("a reader", secret=SECRET)
    try:
        values: list[int] = []
        for shuffle in places:
            for index in range(PARALLELISM):
                source = consume(environment, shuffle, index)
                values += values_of(drain(source, WAIT_S))
                source.close()
        return sorted(values)
    finally:
        environment.close()


def worker_count(cluster: MiniCluster) -> int:
    overview = resource_manager(cluster).request_resource_overview()
    return len(cluster.handle.call(overview, WAIT_S).task_managers)


def test_what_a_job_leaves_is_read_again_and_again_until_it_is_released(
    cluster: MiniCluster, directory: Path
) -> None:
    first, second = (persistent_graph(lambda n: n) for _ in range(2))
    run(cluster, first)
    (left,) = data_sets(cluster)
    assert left.is_complete and left.partition_count == PARALLELISM
    assert left.data_set == ClusterDataSetId(first.job_id, first.edges[0].data_set_id)
    run(cluster, second)
    places = places_of(cluster, left.data_set)
    assert read(places) == read(places) == list(range(COUNT))
    assert len(data_sets(cluster)) == 2
    # Whoever holds something stays, however long it is idle; the others go.
    for info in data_sets(cluster):
        assert worker_count(cluster) > 0 and files(directory)
        call = resource_manager(cluster).release_cluster_partitions(info.data_set)
        cluster.handle.call(call, WAIT_S)
    assert data_sets(cluster) == () and places_of(cluster, left.data_set) == ()
    wait_until(lambda: files(directory) == [])
    wait_until(lambda: worker_count(cluster) == 0)


def test_another_resource_manager_that_follows_lists_what_jobs_have_left(
    cluster: MiniCluster,
) -> None:
    graph = persistent_graph(lambda n: n)
    run(cluster, graph)
    before = data_sets(cluster)
    running = cluster.handle._cluster
    failing = running.resource_manager
    failing.close_async()
    wait_until(lambda: running.resource_manager is not failing)
    assert data_sets(cluster) == before and before[0].is_complete
    assert read(places_of(cluster, before[0].data_set)) == list(range(COUNT))
    released = resource_manager(cluster).release_cluster_partitions(before[0].data_set)
    cluster.handle.call(released, WAIT_S)
    wait_until(lambda: worker_count(cluster) == 0)


def test_with_a_task_manager_the_whole_data_set_is_lost(
    cluster: MiniCluster, directory: Path
) -> None:
    run(cluster, persistent_graph(lambda n: n))
    (left,) = data_sets(cluster)
    location = places_of(cluster, left.data_set)[0].location
    assert location is not None
    resource_manager(cluster).disconnect_task_manager(location.resource_id, "the test ends it")
    wait_until(lambda: data_sets(cluster) == ())
    wait_until(lambda: files(directory) == [])


def test_a_job_that_fails_leaves_nothing(cluster: MiniCluster, directory: Path) -> None:
    run(cluster, persistent_graph(lambda n: 1 // (n - 500)), JobStatus.FAILED)
    assert data_sets(cluster) == ()
    wait_until(lambda: files(directory) == [])
