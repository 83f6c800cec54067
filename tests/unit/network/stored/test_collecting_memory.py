"""Memory in which a sort-merge result collects its rows, by the number of its consumers."""

import pytest

from headrace.core.shuffle_descriptors import ResultPartitionDescriptor, ResultPartitionType
from headrace.network import partition_factory
from headrace.network.environment import CreditBasedShuffleEnvironment
from headrace.network.errors import InsufficientBuffersError
from headrace.network.partitions.result_partition import ResultPartition
from tests.unit.network.exchange import partition_id
from tests.unit.network.simulated import SimulatedCluster


def collecting_bytes(environment: CreditBasedShuffleEnvironment, consumer_count: int) -> int:
    kind = ResultPartitionType.BLOCKING
    partition = environment.create_result_partition(
        ResultPartitionDescriptor(partition_id(), kind, consumer_count)
    )
    size = partition.pool.maximum * partition.pool.segment_size
    partition.release()
    return size


@pytest.mark.parametrize(
    ("consumer_count", "megabytes"), [(8, 8), (9, 9), (12, 12), (16, 16), (512, 16)]
)
def test_it_is_an_eighth_of_what_is_free_and_up_to_a_quarter_for_many_consumers(
    consumer_count: int, megabytes: int
) -> None:
    # For eight consumers an eighth is two regions with a full batch of 512 KB for each.
    cluster = SimulatedCluster()
    environment, _ = cluster.start(
        "a",
        taskmanager_memory_network_max="64mb",
        taskmanager_memory_network_min="64mb",
        taskmanager_network_sort__shuffle_min__buffers="1",
    )
    assert collecting_bytes(environment, consumer_count) == megabytes << 20
    cluster.assert_nothing_leaks()


def results_that_fit(pool_megabytes: int, consumer_count: int) -> int:
    """How many results of so many consumers are open at the same time before one is refused."""
    cluster = SimulatedCluster()
    size = f"{pool_megabytes}mb"
    environment, _ = cluster.start(
        "a", taskmanager_memory_network_max=size, taskmanager_memory_network_min=size
    )
    kind = ResultPartitionType.BLOCKING
    made: list[ResultPartition] = []
    with pytest.raises(InsufficientBuffersError):
        while True:
            identity = partition_id(len(made))
            descriptor = ResultPartitionDescriptor(identity, kind, consumer_count)
            made.append(environment.create_result_partition(descriptor))
    for partition in made:
        partition.release()
    cluster.assert_nothing_leaks()
    return len(made)


# Of the pools up to 4 GB the second one has the fewest in comparison.
@pytest.mark.parametrize("pool_megabytes", [64, 192, 512, 1024])
def test_nearly_as_many_results_of_many_consumers_fit_as_if_each_took_an_eighth(
    pool_megabytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    fitting = results_that_fit(pool_megabytes, 512)
    monkeypatch.setattr(partition_factory, "MANY_CONSUMERS_SHARE", 8)
    assert fitting >= 0.8 * results_that_fit(pool_megabytes, 512) > 0
