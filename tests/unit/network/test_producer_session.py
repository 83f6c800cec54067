"""One connection's readers under any order of requests, credit, cancels, failures and ends."""

from hypothesis import given
from hypothesis import strategies as st

from headrace.network.errors import ProtocolError
from headrace.network.frame_cutter import FrameCutter
from headrace.network.producer_session import ProducerSession
from headrace.network.wire import (
    AddCredit,
    Backlog,
    Cancel,
    ChannelMessage,
    Data,
    Error,
    Event,
    NewBufferSize,
    PartitionRequest,
    ResumeConsumption,
    Schema,
)
from tests.unit.network.exchange import numbers, partition_id, writer
from tests.unit.network.simulated import SimulatedCluster

PARTITIONS = 3


class NoLink:
    """A connection that nobody empties but the test."""

    peer = "the consumer"

    def wake(self) -> None:
        """The test takes output when it likes."""


ACT_NAMES = (
    *("request", "credit", "emit", "take") * 2,
    *("cancel", "finish", "fail", "release", "resume", "size", "wait", "close"),
)
ACTS = st.lists(st.tuples(st.sampled_from(ACT_NAMES), st.integers(0, PARTITIONS)), max_size=50)


@given(ACTS)
def test_every_order_of_events_ends_without_a_reader_or_a_segment(
    acts: list[tuple[str, int]],
) -> None:
    cluster = SimulatedCluster()
    environment, _ = cluster.start("a")
    session = ProducerSession(
        environment.partitions, environment.transport, NoLink(), 1000, environment.task_events
    )
    sinks = [writer(environment, number=number, buffer_timeout_ms=0) for number in range(2)]
    cutter = FrameCutter("a")
    open_channels: set[int] = set()
    granted: dict[int, int] = {}
    next_channel = 0

    def tell(frame: ChannelMessage) -> None:
        nonlocal is_broken
        try:
            session.channel_message_received(frame)
        except ProtocolError:
            is_broken = True

    is_broken = False
    for act, index in [*acts, ("close", 0)]:
        channel = max(0, next_channel - 1 - index)
        if act == "request":
            # The last of the partitions is never there; the others may have been read already.
            request = PartitionRequest(next_channel, partition_id(index), 0, 1, 100, 1 << 20)
            session.partition_requested(request)
            open_channels.add(next_channel)
            granted[next_channel] = 1
            next_channel += 1
        elif act == "credit" and channel in open_channels:
            tell(AddCredit(channel, 2))
            granted[channel] += 2
        elif act == "cancel":
            tell(Cancel(channel))
            open_channels.discard(channel)
        elif act == "resume":
            tell(ResumeConsumption(channel))
        elif act == "size":
            tell(NewBufferSize(channel, 4096))
        elif act == "emit" and index < 2 and sinks[index].is_available:
            if not sinks[index].partition.is_finished and not sinks[index].partition.pool.is_destroyed:  # fmt: skip
                sinks[index].emit(numbers(0, 10))
        elif act == "finish" and index < 2 and not sinks[index].partition.pool.is_destroyed:
            sinks[index].finish()
            sinks[index].close()
        elif act == "fail" and index < 2:
            sinks[index].fail(ValueError("no"))
        elif act == "release" and index < 2:
            environment.release_partitions([partition_id(index)])
        elif act == "wait":
            cluster.loop.run_for(600)
        elif act == "take":
            data = b"".join(bytes(part) for part in session.take_output(1 << 16))
            for cut in cutter.cut(data):
                frame = cut.frame
                assert isinstance(frame, Data | Event | Error | Schema | Backlog)
                # Nothing is said of a channel before its request and after its cancel.
                assert frame.channel in open_channels
                if isinstance(frame, Data):
                    granted[frame.channel] -= frame.credit_count
                    assert granted[frame.channel] >= 0
                elif isinstance(frame, Error):
                    open_channels.discard(frame.channel)
        if act == "close" or is_broken:
            # As after a violation of the protocol: the connection ends.
            session.close()
            break
    assert not session._readers
    for sink in sinks:
        sink.close()
    environment.partitions.release_all()
    assert all(sink.partition.pool.used == 0 for sink in sinks)
    cluster.assert_nothing_leaks()
