"""What gates and writers say of themselves while batches wait, and after everything was released."""

import pytest

from headrace.core.clock import ManualClock
from headrace.metrics import MetricGroup, names
from headrace.metrics.names import MetricName
from headrace.network.metrics import register_pool_metrics, register_task_metrics
from tests.unit.network.exchange import gate, numbers, writer
from tests.unit.network.simulated import SimulatedCluster


class Figures:
    """Reads one group by rows of the table."""

    def __init__(self) -> None:
        self.group = MetricGroup(ManualClock())

    def __getitem__(self, row: MetricName) -> float:
        return self.group.own_snapshot()[row.name]


@pytest.mark.parametrize("is_local", [True, False])
def test_batches_are_counted_where_they_wait_and_where_they_were_taken(is_local: bool) -> None:
    cluster = SimulatedCluster()
    producer, location = cluster.start("a")
    consumer = producer if is_local else cluster.start("b")[0]
    sink, source = writer(producer, buffer_timeout_ms=0), gate(consumer, [location])
    sent, received = Figures(), Figures()
    register_task_metrics(sent.group, [], [sink])
    register_task_metrics(received.group, [source], [])
    sink.emit(numbers(0, 1000))
    assert sent[names.NUM_BYTES_OUT] >= 8000 and sent[names.NUM_BUFFERS_OUT] == 1
    assert sent[names.OUTPUT_QUEUE_LENGTH] == 1
    assert sent[names.OUTPUT_QUEUE_SIZE] == sent[names.NUM_BYTES_OUT]
    assert 0 < sent[names.OUT_POOL_USAGE] <= 1

    source.request_partitions()
    cluster.loop.run_until(lambda: source.is_available)
    assert received[names.INPUT_QUEUE_LENGTH] == 1 and received[names.NUM_BUFFERS_IN] == 0
    assert (received[names.IN_POOL_USAGE] > 0) is not is_local
    assert source.poll() is not None
    taken = names.NUM_BYTES_IN_LOCAL if is_local else names.NUM_BYTES_IN_REMOTE
    assert received[names.NUM_BYTES_IN] == received[taken] >= 8000
    assert received[names.NUM_BUFFERS_IN] == 1 and received[names.INPUT_QUEUE_LENGTH] == 0

    sink.close()
    source.close()
    cluster.loop.run_all()
    assert received[names.IN_POOL_USAGE] == 0 and received[names.INPUT_QUEUE_LENGTH] == 0
    assert sent[names.OUT_POOL_USAGE] == 0 and sent[names.OUTPUT_QUEUE_SIZE] == 0
    # The counts stay: they are the task's last word.
    assert sent[names.NUM_BUFFERS_OUT] == received[names.NUM_BUFFERS_IN] == 1
    cluster.assert_nothing_leaks()


def test_a_task_without_inputs_and_outputs_reads_zero() -> None:
    figures = Figures()
    register_task_metrics(figures.group, [], [])
    assert set(figures.group.own_snapshot().values()) == {0}


def test_the_network_memory_in_use_and_the_free_one_make_the_whole() -> None:
    cluster = SimulatedCluster()
    environment, _ = cluster.start("a")
    group = MetricGroup(ManualClock())
    register_pool_metrics(group, environment.buffer_pool)
    sink = writer(environment, buffer_timeout_ms=0)
    sink.emit(numbers(0, 10))
    values = group.add_group("Shuffle").add_group("Netty").own_snapshot()
    used, free = values[names.USED_MEMORY.name], values[names.AVAILABLE_MEMORY.name]
    assert used > 0 and used + free == values[names.TOTAL_MEMORY.name]
    assert values[names.REQUESTED_MEMORY_USAGE.name] > 0
    environment.partitions.release_all()
    sink.close()
    cluster.assert_nothing_leaks()
