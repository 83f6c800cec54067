"""The laws of reading (input channels, gates, fairness), over the simulated exchange."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.elements import CancelTaskException, EndOfData, EndOfPartition, StopMode
from headrace.core.ids import ResultPartitionId
from headrace.core.randomness import SeededRandom
from headrace.graph.job_graph import PartitionerKind
from headrace.network.errors import NetworkError
from headrace.network.sessions.producer_session import ProducerSession
from headrace.network.wire.frames import Cancel, ChannelMessage, PartitionRequest
from tests.unit.network.exchange import gate, numbers, values_of, writer
from tests.unit.network.partition_traces import Consumer, Producer, Step, steps
from tests.unit.network.scripted_gate import Gate, polled, rows
from tests.unit.network.simulated import SimulatedCluster


@given(steps, st.integers(0, 1 << 20))
def test_a_local_and_a_remote_channel_see_the_same_sequence(trace: list[Step], seed: int) -> None:
    random = SeededRandom(seed)
    cluster = SimulatedCluster(lambda source, target: random.choice([0.0, 1.0, 20.0]))
    here, location = cluster.start("a")
    there, _ = cluster.start("b")
    sink = writer(here, 2, PartitionerKind.BROADCAST)
    local, remote = Consumer(gate(here, [location], 0)), Consumer(gate(there, [location], 1))
    producer = Producer(sink)
    for step in trace:
        while not sink.is_available:
            cluster.loop.step()
            local.poll_all()
            remote.poll_all()
        producer.perform(step)
        if random.random() < 0.3:
            sink.emit_event(EndOfData(StopMode.NO_DRAIN))
        for reader in (local, remote):
            if random.random() < 0.3:
                reader.poll_all()
    producer.end()
    assert local.read_all(cluster) == remote.read_all(cluster)
    assert local.seen[-1] == EndOfPartition()
    local.close()
    remote.close()
    cluster.assert_nothing_leaks()


@pytest.mark.slow
@pytest.mark.parametrize("is_local", [True, False])
@pytest.mark.parametrize("seed", range(25))
def test_a_gate_that_is_closed_at_any_moment_gives_everything_back_and_cancels_once(
    monkeypatch: pytest.MonkeyPatch, seed: int, is_local: bool
) -> None:
    requested: dict[int, ResultPartitionId] = {}
    cancelled: Counter[int] = Counter()
    take, request = ProducerSession.channel_message_received, ProducerSession.partition_requested

    def counted(self: ProducerSession, frame: ChannelMessage) -> None:
        if isinstance(frame, Cancel):
            cancelled[frame.channel] += 1
        take(self, frame)

    def noted(self: ProducerSession, frame: PartitionRequest) -> None:
        requested[frame.channel] = frame.partition_id
        request(self, frame)

    monkeypatch.setattr(ProducerSession, "channel_message_received", counted)
    monkeypatch.setattr(ProducerSession, "partition_requested", noted)
    random = SeededRandom(seed)
    cluster = SimulatedCluster(lambda source, target: random.choice([0.0, 1.0, 20.0]))
    producer, location = cluster.start("a")
    consumer = producer if is_local else cluster.start("b")[0]
    sinks = [writer(producer, number=number) for number in range(3)]
    source = gate(consumer, [location] * 3)
    source.request_partitions()
    for turn in range(random.randrange(60)):
        choice = random.random()
        if choice < 0.3:
            sink = random.choice(sinks)
            if sink.is_available and not sink.partition.is_finished:
                sink.emit(numbers(turn * 1000, random.randrange(1, 3000)))
                sink.flush_all()
        elif choice < 0.35:
            random.choice(sinks).finish()
        elif choice < 0.5:
            source.poll()
        else:
            cluster.loop.step()
    source.close()
    source.close()
    with pytest.raises(CancelTaskException):
        source.poll()
    cluster.loop.run_for(500)
    assert source.used_segment_count == 0
    assert all(count == 1 for count in cancelled.values())
    assert set(cancelled) <= set(requested)
    for sink in sinks:
        if is_local or sink.partition.partition_id in requested.values():
            # Its reader has left: the producer runs free, and nothing of it stays.
            for _ in range(0 if sink.partition.is_finished else 30):
                assert sink.is_available
                sink.emit(numbers(0, 3000))
                sink.flush_all()
            sink.finish()
            sink.close()
            assert sink.partition.pool.used == 0
        else:
            sink.close()
    cluster.loop.run_all()
    producer.partitions.release_all()
    cluster.assert_nothing_leaks()


@given(st.integers(1, 9), st.integers(1, 4))
def test_with_all_channels_ready_each_is_read_once_in_as_many_polls(
    channel_count: int, rounds: int
) -> None:
    made = Gate(channel_count)
    for round_number in range(rounds):
        for channel in made.scripted.values():
            channel.give(rows(round_number))
    for _ in range(rounds):
        read = [made.gate.poll() for _ in range(channel_count)]
        assert sorted(each.channel_index for each in read if each is not None) == list(
            range(channel_count)
        )
    assert made.gate.poll() is None


@given(st.lists(st.integers(0, 3), max_size=40))
def test_who_is_always_ready_is_read_within_a_round_whatever_the_others_do(
    others: list[int],
) -> None:
    made = Gate(4)
    made.scripted[0].give(rows(0))
    passed = 0
    for index in others:
        made.scripted[index].give(rows(0))
        element = made.gate.poll()
        assert element is not None
        passed = 0 if element.channel_index == 0 else passed + 1
        if made.scripted[0].queued_count == 0:
            made.scripted[0].give(rows(0))
        assert passed < 4


@given(st.lists(st.tuples(st.sampled_from(["give", "end", "notify", "poll"]), st.integers(0, 2))))
def test_a_channel_stands_in_line_once_and_never_after_its_end(
    steps: list[tuple[str, int]],
) -> None:
    made = Gate(3)
    over: set[int] = set()
    for step, index in steps:
        channel = made.scripted[index]
        if step == "give" and index not in over:
            channel.give(rows(1))
        elif step == "end" and index not in over:
            over.add(index)
            channel.give(EndOfPartition())
        elif step == "notify":
            made.gate.notify(index)
        elif step == "poll":
            made.gate.poll()
        line = made.gate._turns._ready
        assert len(line) == len(set(line))
    ended = [index for index, event in polled(made.gate) if event == EndOfPartition()]
    assert len(ended) == len(set(ended))
    assert made.gate.poll() is None
    assert made.gate.is_finished == (len(over) == 3)


def test_an_error_is_raised_at_its_channels_turn_and_ahead_of_that_channels_rows() -> None:
    cluster = SimulatedCluster()
    first, first_location = cluster.start("a")
    second, second_location = cluster.start("b")
    consumer, _ = cluster.start("c")
    sinks = [writer(first, number=0), writer(second, number=1)]
    source = gate(consumer, [first_location, second_location])
    source.request_partitions()
    cluster.loop.run_for(20)
    sinks[0].emit(numbers(0, 3))
    sinks[0].flush_all()
    cluster.loop.run_for(20)
    sinks[1].emit(numbers(10, 3))
    sinks[1].flush_all()
    cluster.loop.run_for(20)
    cluster.network.kill("b")
    cluster.loop.run_for(20)
    element = source.poll()
    assert element is not None and values_of([element]) == [0, 1, 2]
    del element
    with pytest.raises(NetworkError, match="task manager b was lost"):
        source.poll()
    source.close()
    for sink in sinks:
        sink.close()
    cluster.assert_nothing_leaks()
