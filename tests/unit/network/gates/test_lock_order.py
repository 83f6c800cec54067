"""Locks of the exchange: taken in one order, and nobody else's code is run under them."""

import threading
from collections.abc import Callable

import pytest

from headrace.core.elements import CancelTaskException
from headrace.core.randomness import SeededRandom
from headrace.core.shuffle_descriptors import ResultPartitionType
from headrace.graph.job_graph import PartitionerKind
from headrace.network.errors import NetworkError
from headrace.network.gates.union_gate import UnionInputGate
from tests.unit.network.exchange import gate, numbers, writer
from tests.unit.network.lock_order import LockOrder, WatchedLock, assert_lawful, watched_locks
from tests.unit.network.partition_traces import KINDS
from tests.unit.network.scripted_gate import Gate, polled, rows
from tests.unit.network.simulated import SimulatedCluster

# The line of a union's gates is one of ReadyChannels, as that of a gate's channels is: taken in each other, a cycle.
PIPELINED = {
    "SingleInputGate",
    "ReadyChannels",
    "PipelinedSubpartition",
    "PipelinedResultPartition",
    "ResultPartitionManager",
    "NetworkBufferPool",
}


def test_the_watcher_sees_a_cycle_and_a_call_under_a_lock() -> None:
    order = LockOrder()
    one, other = WatchedLock(order, "one"), WatchedLock(order, "other")
    with one, other:
        pass
    assert order.cycles() == []
    with other, one:
        order.foreign("a listener")
    assert set(order.cycles()) == {"one", "other"}
    assert order.foreign_calls == ["a listener under other > one"]


def test_the_watcher_takes_two_locks_of_a_class_in_each_other_for_a_cycle() -> None:
    order = LockOrder()
    with WatchedLock(order, "queue"), WatchedLock(order, "queue"):
        pass
    assert order.cycles() == ["queue"]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_no_schedule_of_reading_writing_failing_and_leaving_takes_locks_in_a_circle(
    seed: int,
) -> None:
    random = SeededRandom(seed)
    with watched_locks() as order:
        cluster = SimulatedCluster(lambda source, target: random.choice([0.0, 1.0, 20.0]))
        nodes = [cluster.start(f"tm-{index}") for index in range(3)]
        locations = [location for _, location in nodes]
        kinds = [PartitionerKind.REBALANCE, PartitionerKind.BROADCAST, PartitionerKind.RESCALE]
        # The pipelined one whatever else is there, and two of any type.
        types = [ResultPartitionType.PIPELINED_BOUNDED, *(random.choice(KINDS) for _ in range(2))]
        sinks = [writer(nodes[k][0], 3, kinds[k], -1, k, types[k]) for k in range(3)]
        sources = [gate(nodes[k][0], locations, k) for k in range(3)]
        readers = [UnionInputGate([source]) for source in sources]
        told: list[str] = []

        def listener(what: str) -> Callable[[], None]:
            def call() -> None:
                order.foreign(what)
                told.append(what)

            return call

        for sink in sinks:
            sink.partition.on_all_data_processed(listener("all data processed"))
        for source in sources:
            source.request_partitions()
        for turn in range(400):
            index, choice = random.randrange(3), random.random()
            sink, reader = sinks[index], readers[index]
            try:
                if choice < 0.3 and not sink.partition.is_finished:
                    if sink.is_available:
                        sink.emit(numbers(turn * 100, random.randrange(1, 100)))
                        sink.flush_all()
                    else:
                        sink.on_available(listener("writer available"))
                elif choice < 0.6:
                    if reader.poll() is None:
                        reader.on_available(listener("gate available"))
                        sources[index].on_priority_event(listener("priority"))
                elif choice < 0.61:
                    sink.finish()
                    sink.close()
                elif choice < 0.615:
                    sink.fail(ValueError("a bad row"))
                elif choice < 0.62:
                    sources[index].close()
                elif choice < 0.622:
                    nodes[index][0].release_partitions([sink.partition.partition_id])
                else:
                    cluster.loop.step()
            except (NetworkError, CancelTaskException):
                sources[index].close()
                sink.close()
        for source in sources:
            source.close()
        for sink in sinks:
            sink.close()
        cluster.loop.run_all()
        for environment, _ in nodes:
            environment.partitions.release_all()
        cluster.assert_nothing_leaks()
    assert told
    assert_lawful(order)
    # Rows that are not stored pass from task to task without two locks ever being held at once.
    assert order.names >= PIPELINED and PIPELINED.isdisjoint(order.edges)


def test_a_gate_tells_the_union_that_reads_it_without_holding_its_own_line() -> None:
    held: list[list[str]] = []
    with watched_locks() as order:
        made = Gate(1)
        union = UnionInputGate([made.gate])
        assert union.poll() is None
        union.on_available(lambda: held.append(list(order.held)))
        made.scripted[0].give(rows(1))
        assert polled(union) == [(0, 1)]
    assert held == [[]]
    assert "ReadyChannels" in order.names and order.edges == {}
    assert_lawful(order)


def test_waiting_under_a_condition_does_not_count_as_holding_it() -> None:
    order = LockOrder()
    condition = threading.Condition(WatchedLock(order, "pool"))  # type: ignore[arg-type]
    with condition:
        assert not condition.wait(0)
        assert order.held == ["pool"]
    assert order.held == []
