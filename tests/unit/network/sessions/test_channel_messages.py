"""Messages about a channel: none before its request or after its release."""

from collections import defaultdict

import pytest

from headrace.core.barriers import CheckpointBarrier, CheckpointOptions
from headrace.core.elements import EndOfData
from headrace.core.randomness import SeededRandom
from headrace.network.sessions.peer_session import PeerSession
from headrace.network.wire.frames import Cancel, PartitionRequest
from headrace.network.wire.framing import Frame
from tests.unit.network.exchange import gate, numbers, writer
from tests.unit.network.simulated import SimulatedCluster

CHANNELS = 3


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> dict[str, dict[int, list[type[Frame]]]]:
    """By who said it and channel, what was said to the other side, in the order in which it came."""
    said: dict[str, dict[int, list[type[Frame]]]] = defaultdict(lambda: defaultdict(list))
    take = PeerSession.frame_received

    def noted(self: PeerSession, frame: Frame) -> None:
        channel = getattr(frame, "channel", None)
        if channel is not None:
            said[self._link.peer][channel].append(type(frame))
        take(self, frame)

    monkeypatch.setattr(PeerSession, "frame_received", noted)
    return said


@pytest.mark.parametrize("seed", range(30))
def test_a_consumer_says_nothing_of_a_channel_before_its_request_or_after_one_cancellation(
    heard: dict[str, dict[int, list[type[Frame]]]], seed: int
) -> None:
    random = SeededRandom(seed)
    cluster = SimulatedCluster(lambda source, target: random.choice([0.0, 1.0, 20.0]))
    producer, location = cluster.start("a")
    consumer, _ = cluster.start("b")
    sinks = [writer(producer, number=number, buffer_timeout_ms=0) for number in range(CHANNELS)]
    source = gate(consumer, [location] * CHANNELS)
    source.request_partitions()
    is_connected_first = seed % 3 > 0
    if is_connected_first:
        cluster.loop.run_for(200)
    open_sinks, blocked = list(sinks), set[int]()
    close_at = random.randrange(20, 200)
    for turn in range(close_at):
        choice = random.random()
        sink = random.choice(sinks)
        if choice < 0.3 and sink in open_sinks and sink.is_available:
            sink.emit(numbers(turn * 1000, random.randrange(1, 2000)))
        elif choice < 0.34 and sink in open_sinks:
            options = CheckpointOptions()
            sink.emit_event(CheckpointBarrier(turn, 0, options), blocks_upstream=True)
        elif choice < 0.37 and sink in open_sinks:
            open_sinks.remove(sink)
            sink.emit_event(EndOfData())
            sink.finish()
        elif choice < 0.4:
            source.limit_in_flight(random.randrange(1, 1 << 20))
        elif choice < 0.7:
            element = source.poll()
            event = getattr(element, "event", None)
            if element is not None and isinstance(event, CheckpointBarrier):
                blocked.add(element.channel_index)
            elif element is not None and isinstance(event, EndOfData):
                source.acknowledge_all_data(element.channel_index)
        elif choice < 0.75 and blocked:
            source.resume(blocked.pop())
        else:
            cluster.loop.step()
    source.close()
    for sink in sinks:
        sink.close()
    cluster.loop.run_all()
    producer.partitions.release_all()
    cluster.assert_nothing_leaks()
    assert len(heard["b"]) == CHANNELS or not is_connected_first
    for frames in heard["b"].values():
        assert frames[0] is PartitionRequest
        assert frames.count(PartitionRequest) == 1
        assert frames.count(Cancel) <= 1
        assert Cancel not in frames or frames[-1] is Cancel
