"""Metrics of gates and writers while batches wait, and after all is released."""

import pytest

from headrace.core.clock import ManualClock
from headrace.core.randomness import SeededRandom
from headrace.graph.job_graph import PartitionerKind
from headrace.metrics import MetricGroup, names
from headrace.network.metrics import register_pool_metrics, register_task_metrics
from tests.unit.network.exchange import gate, numbers, writer
from tests.unit.network.metric_figures import Figures
from tests.unit.network.simulated import SimulatedCluster


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


def test_rates_are_what_was_counted_in_the_last_minute() -> None:
    cluster = SimulatedCluster()
    producer, location = cluster.start("a")
    sink, source = writer(producer, buffer_timeout_ms=0), gate(producer, [location])
    group = MetricGroup(cluster.loop.clock)
    register_task_metrics(group, [source], [sink])
    source.request_partitions()
    for start in range(5):
        sink.emit(numbers(start, 1))
        cluster.loop.run_for(2000)
        assert source.poll() is not None
    values = group.own_snapshot()
    assert values[names.NUM_BUFFERS_OUT_PER_SECOND.name] == 0.5
    assert values[names.NUM_BUFFERS_IN_PER_SECOND.name] == 0.5
    assert values[names.NUM_BYTES_IN_PER_SECOND.name] == sink.bytes_out / 10
    assert values[names.NUM_BYTES_OUT_PER_SECOND.name] == sink.bytes_out / 10
    sink.close()
    source.close()
    cluster.assert_nothing_leaks()


def test_the_lengths_of_single_queues_are_told_where_they_are_wanted() -> None:
    cluster = SimulatedCluster()
    producer, location = cluster.start("a")
    sink = writer(producer, 3, PartitionerKind.GLOBAL, buffer_timeout_ms=0)
    source = gate(producer, [location])
    source.request_partitions()
    plain, detailed = MetricGroup(ManualClock()), MetricGroup(ManualClock())
    register_task_metrics(plain, [source], [sink])
    register_task_metrics(detailed, [source], [sink], is_detailed=True)
    for start in range(6):
        sink.emit(numbers(start, 1))
    found = {
        name: value for name, value in detailed.own_snapshot().items() if name.endswith("QueueLen")
    }
    assert found == {
        "input.0.totalQueueLen": 6,
        "input.0.minQueueLen": 6,
        "input.0.maxQueueLen": 6,
        "input.0.avgQueueLen": 6.0,
        "output.0.totalQueueLen": 6,
        "output.0.minQueueLen": 0,
        "output.0.maxQueueLen": 6,
        "output.0.avgQueueLen": 2.0,
    }
    assert not any(name.endswith("QueueLen") for name in plain.own_snapshot())
    sink.close()
    source.close()
    producer.partitions.release_all()
    cluster.assert_nothing_leaks()


def test_granted_credit_is_told_and_goes_with_what_arrives() -> None:
    cluster = SimulatedCluster()
    producer, location = cluster.start("a")
    consumer, _ = cluster.start("b")
    sink, source = writer(producer, buffer_timeout_ms=0), gate(consumer, [location])
    group = MetricGroup(cluster.loop.clock)
    register_task_metrics(group, [source], [])
    assert group.own_snapshot()[names.INPUT_CREDITS.name] == 0
    source.request_partitions()
    cluster.loop.run_for(50)
    granted = group.own_snapshot()[names.INPUT_CREDITS.name]
    assert granted == source.segment_count
    sink.emit(numbers(0, 10))
    cluster.loop.run_for(50)
    assert group.own_snapshot()[names.INPUT_CREDITS.name] == granted - 1
    sink.close()
    source.close()
    cluster.assert_nothing_leaks()


@pytest.mark.parametrize("seed", range(10))
def test_a_gauge_never_raises_and_shares_stay_shares_whatever_is_cancelled_meanwhile(
    seed: int,
) -> None:
    random = SeededRandom(seed)
    cluster = SimulatedCluster()
    producer, location = cluster.start("a")
    consumer, _ = cluster.start("b")
    sinks = [writer(producer, buffer_timeout_ms=0, number=number) for number in range(2)]
    source = gate(consumer, [location] * 2)
    group = MetricGroup(cluster.loop.clock)
    register_task_metrics(group, [source], sinks, is_detailed=True)
    expected = set(group.own_snapshot())
    source.request_partitions()
    acts = [
        *[lambda sink=sink: sink.close() for sink in sinks],
        source.close,
        lambda: cluster.network.kill("a"),
        lambda: producer.partitions.release_all(),
    ]
    for turn in range(80):
        if random.random() < 0.05 and acts:
            acts.pop(random.randrange(len(acts)))()
        for sink in sinks:
            if sink.is_available and not sink.partition.pool.is_destroyed:
                sink.emit(numbers(turn * 100, 100))
        if random.random() < 0.5:
            cluster.loop.step()
        values = group.own_snapshot()
        # One that raised would be missing.
        assert set(values) == expected
        assert 0 <= values[names.IN_POOL_USAGE.name] <= 1
        assert 0 <= values[names.INPUT_EXCLUSIVE_USAGE.name] <= 1
        assert 0 <= values[names.INPUT_FLOATING_USAGE.name] <= 1
        size = min(sink.partition.pool.size for sink in sinks)
        assert 0 <= values[names.OUT_POOL_USAGE.name] <= 1 + 5 / size
        assert all(value >= 0 for value in values.values())
    for act in acts:
        act()
    cluster.loop.run_all()
    assert group.own_snapshot()[names.IN_POOL_USAGE.name] == 0
    assert group.own_snapshot()[names.INPUT_CREDITS.name] == 0
    cluster.assert_nothing_leaks()
