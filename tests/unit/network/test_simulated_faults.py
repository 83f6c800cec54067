"""Faults between simulated TaskManagers: every frame of an exchange is cut at, delayed or spoiled, in virtual time."""

from collections.abc import Sequence

import pytest

from headrace.core.elements import EndOfData, EndOfPartition, Watermark
from headrace.graph.job_graph import PartitionerKind
from headrace.network.errors import ConnectionLostError, NetworkError, PartitionConnectionError
from headrace.network.gates.gate import GateElement
from headrace.network.memory.sizing import BUFFERS_PER_CHANNEL, FLOATING_BUFFERS_PER_GATE
from tests.unit.network.exchange import events_of, gate, numbers, values_of, writer
from tests.unit.network.faulty_cluster import FaultyCluster


def exchange(
    cluster: FaultyCluster, batch_count: int = 4, kill: tuple[str, int] | None = None
) -> tuple[list[GateElement], str]:
    """Send batches from a to b; return what came and how it ended. What remains is closed, and nothing leaks.

    `kill`: who vanishes, after how many events of the simulation.
    """
    producer, location = cluster.start("a")
    consumer, _ = cluster.start("b")
    sink, source = writer(producer), gate(consumer, [location])
    source.request_partitions()
    for number in range(batch_count):
        sink.emit(numbers(number * 5, 5))
        sink.emit_marker(Watermark(number))
        sink.flush_all()
    sink.emit_event(EndOfData())
    sink.finish()
    sink.close()
    elements: list[GateElement] = []
    try:
        ended, step_count = "silence", 0
        while not source.is_finished:
            element = source.poll()
            if kill is not None and step_count == kill[1]:
                cluster.network.kill(kill[0])
            step_count += element is None
            if element is not None:
                elements.append(element)
            elif not cluster.loop.step() or cluster.loop.clock.now_ms() > 30_000:
                break
        else:
            ended = "complete"
    except NetworkError as error:
        ended = type(error).__name__
    source.close()
    producer.release_partitions([sink.partition.partition_id])
    for environment in cluster.environments:
        environment.close()
    cluster.assert_nothing_leaks()
    return elements, ended


def assert_a_prefix(elements: Sequence[GateElement]) -> None:
    rows = values_of(elements)
    assert rows == list(range(len(rows)))


@pytest.mark.parametrize("at", [0, 9, 40])
@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_a_connection_cut_at_every_frame_in_turn_ends_in_data_or_one_error(
    direction: str, at: int
) -> None:
    endings: list[str] = []
    for nth in range(1, 40):
        cluster = FaultyCluster(f"cut {at} direction={direction} nth={nth}")
        elements, ended = exchange(cluster)
        assert_a_prefix(elements)
        if cluster.fault_count == 0:
            assert ended == "complete"
            break
        endings.append(ended)
    else:
        raise AssertionError("the exchange has more frames than were tried")
    assert set(endings) <= {"complete", "ConnectionLostError", "PartitionConnectionError"}
    assert endings[0] in ("ConnectionLostError", "PartitionConnectionError")
    assert issubclass(PartitionConnectionError, NetworkError)
    assert issubclass(ConnectionLostError, NetworkError)


@pytest.mark.parametrize("victim", ["a", "b"])
def test_a_task_manager_that_vanishes_at_every_moment_in_turn_takes_nothing_with_it(
    victim: str,
) -> None:
    endings: list[str] = []
    for moment in range(1, 400):
        elements, ended = exchange(FaultyCluster(), kill=(victim, moment))
        assert_a_prefix(elements)
        assert ended in ("complete", "ConnectionLostError", "PartitionConnectionError")
        endings.append(ended)
        if endings[-5:] == ["complete"] * 5:
            break
    else:
        raise AssertionError("the exchange takes longer than was tried")
    assert endings.count("ConnectionLostError") >= 3


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(
    "rules",
    [
        ["fragment"],
        ["coalesce within=3ms"],
        ["delay 1ms jitter=40ms"],
        ["throttle 4KiB/s"],
        ["stall for=2s probability=0.2"],
        ["fragment 3B probability=0.5", "delay 0ms jitter=9ms", "coalesce 200B probability=0.3"],
    ],
)
def test_what_only_slows_or_cuts_the_stream_changes_nothing(rules: list[str], seed: int) -> None:
    elements, ended = exchange(FaultyCluster(*rules, seed=seed))
    assert ended == "complete"
    assert values_of(elements) == list(range(20))
    assert events_of(elements) == [EndOfData(), EndOfPartition()]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(25))
@pytest.mark.parametrize(
    "rule",
    [
        "drop probability=0.2",
        "duplicate probability=0.2",
        "reorder by=2 probability=0.2",
        "corrupt at=5 probability=0.2",
        "corrupt at=27 Data probability=0.4",
        "stall probability=0.1",
    ],
)
def test_no_fault_delivers_a_row_twice_or_out_of_order(rule: str, seed: int) -> None:
    elements, ended = exchange(FaultyCluster(rule, seed=seed))
    assert_a_prefix(elements)
    if ended == "complete":
        assert values_of(elements) == list(range(20))


def test_the_same_seed_ends_the_same_way_and_another_may_not() -> None:
    rules = ["drop probability=0.1", "delay 0ms jitter=20ms probability=0.5"]
    fates = []
    for seed in [*range(8), *range(8)]:
        cluster = FaultyCluster(*rules, seed=seed)
        elements, ended = exchange(cluster)
        fates.append((len(elements), ended, cluster.fault_count, cluster.loop.clock.now_ms()))
    assert fates[:8] == fates[8:]
    assert len(set(fates)) > 1


@pytest.mark.slow
@pytest.mark.parametrize(("delay_ms", "link_ms"), [(100, 0.0), (100, 5.0), (20, 0.0)])
def test_delayed_credit_costs_throughput_as_computed_and_nothing_else(
    delay_ms: int, link_ms: float
) -> None:
    cluster = FaultyCluster(
        f"delay AddCredit by={delay_ms}ms", delay_ms=lambda source, target: link_ms
    )
    producer, location = cluster.start("a")
    consumer, _ = cluster.start("b")
    sink, source = writer(producer, buffer_timeout_ms=0), gate(consumer, [location])
    source.request_partitions()
    sent = received = 0
    while cluster.loop.clock.now_ms() < 20_000:
        while sink.is_available:
            sink.emit(numbers(sent, 1))
            sent += 1
        while source.poll() is not None:
            received += 1
        cluster.loop.run_for(0.0)
        if not sink.is_available:
            cluster.loop.step()
    # Throughput is credit / round trip: a lone channel has all segments of its gate on their way, as its producer says
    # when much more waits than it had told of with the last data.
    credit = BUFFERS_PER_CHANNEL.default + FLOATING_BUFFERS_PER_GATE.default
    round_trips = 20_000 / (delay_ms + 2 * link_ms)
    assert 0.9 * credit * round_trips <= received <= credit * (round_trips + 1)
    source.close()
    sink.close()
    producer.release_partitions([sink.partition.partition_id])
    for environment in cluster.environments:
        environment.close()
    cluster.assert_nothing_leaks()


def test_a_stalled_channel_does_not_hold_up_the_others_of_its_gate() -> None:
    # Both channels share a connection; what is for channel 0 is not taken by anybody.
    cluster = FaultyCluster("delay AddCredit channel=0 by=10s")
    producer, location = cluster.start("a")
    consumer, _ = cluster.start("b")
    sinks = [writer(producer, number=number, kind=PartitionerKind.FORWARD) for number in range(2)]
    stalled, flowing = (gate(consumer, [location], first_number=number) for number in range(2))
    stalled.request_partitions()
    flowing.request_partitions()
    cluster.loop.run_for(50)
    received = 0
    for number in range(400):
        for sink in sinks:
            if sink.is_available:
                sink.emit(numbers(number, 1))
                sink.flush_all()
        cluster.loop.run_for(5)
        while flowing.poll() is not None:
            received += 1
    assert received >= 0.9 * 400
    assert not sinks[0].is_available
    for source in (stalled, flowing):
        source.close()
    for sink in sinks:
        sink.close()
    producer.release_partitions([sink.partition.partition_id for sink in sinks])
    for environment in cluster.environments:
        environment.close()
    cluster.assert_nothing_leaks()
