"""One connection's readers under any order of requests, credit, cancels, failures and ends."""

from hypothesis import example, given
from hypothesis import strategies as st

from headrace.core.barriers import AlignmentMode, CheckpointBarrier, CheckpointOptions
from headrace.core.elements import EndOfData, EndOfPartition
from headrace.network.batches.sealed_batch import encode_event
from headrace.network.errors import ProtocolError
from headrace.network.sessions.producer_session import ProducerSession
from headrace.network.wire.frame_splitter import FrameSplitter
from headrace.network.wire.frames import (
    AckAllUserRecordsProcessed,
    AddCredit,
    Backlog,
    Cancel,
    ChannelMessage,
    Data,
    Error,
    ErrorCode,
    Event,
    EventTrait,
    NewBufferSize,
    PartitionRequest,
    ResumeConsumption,
    Schema,
)
from headrace.network.writers.record_writer import RecordWriter
from tests.unit.network.exchange import numbers, partition_id, writer
from tests.unit.network.simulated import SimulatedCluster

PARTITIONS = 3
END_OF_PARTITION = encode_event(EndOfPartition())[0]


class NoLink:
    """A connection that nobody empties but the test."""

    peer = "the consumer"

    def wake(self) -> None:
        """The test takes output when it likes."""


ACT_NAMES = (
    *("request", "credit", "emit", "take") * 2,
    *("barrier", "barrier", "resume", "resume"),
    *("cancel", "finish", "fail", "release", "size", "wait", "close"),
)
ACTS = st.lists(st.tuples(st.sampled_from(ACT_NAMES), st.integers(0, PARTITIONS)), max_size=50)


BLOCKED_AND_RESUMED = "request barrier emit take take resume take resume"


class Peer:
    """The consumers on the other end of a session: what they ask for, and whether they may be told what they are."""

    def __init__(self, session: ProducerSession) -> None:
        self._session = session
        self._cutter = FrameSplitter("a")
        self._open_channels: set[int] = set()
        self._granted: dict[int, int] = {}
        # Channels that were sent an event behind which nothing comes until they are resumed.
        self.blocked: set[int] = set()
        self._next_channel = 0
        self.is_broken = False

    def act(self, act: str, index: int) -> None:
        """Do it, where it is an act of a consumer."""
        channel = max(0, self._next_channel - 1 - index)
        if act == "request":
            self._request(index)
        elif act == "credit" and channel in self._open_channels:
            self._tell(AddCredit(channel, 2))
            self._granted[channel] += 2
        elif act == "cancel":
            self._tell(Cancel(channel))
            self._open_channels.discard(channel)
        elif act == "resume" and (channel in self.blocked or index == 0):
            # Of a channel that is not blocked it is a violation of the protocol, where there is one.
            is_due = channel in self.blocked or channel not in self._open_channels
            self.blocked.discard(channel)
            self._tell(ResumeConsumption(channel))
            assert is_due or self.is_broken
        elif act == "size":
            self._tell(NewBufferSize(channel, 4096))
        elif act == "take":
            data = b"".join(bytes(part) for part in self._session.take_output(1 << 16))
            for cut in self._cutter.cut(data):
                self._take(cut.frame)

    def _request(self, index: int) -> None:
        # The last of the partitions is never there; the others may have been read already.
        channel = self._next_channel
        request = PartitionRequest(channel, partition_id(index), 0, 1, 100, 1 << 20)
        self._session.partition_requested(request)
        self._open_channels.add(channel)
        self._granted[channel] = 1
        self._next_channel += 1

    def _tell(self, frame: ChannelMessage) -> None:
        try:
            self._session.channel_message_received(frame)
        except ProtocolError:
            self.is_broken = True

    def _take(self, frame: object) -> None:
        assert isinstance(frame, Data | Event | Error | Schema | Backlog)
        # Nothing is said of a channel before its request and after its cancel.
        assert frame.channel in self._open_channels
        assert frame.channel not in self.blocked or isinstance(frame, Error | Backlog)
        if isinstance(frame, Event):
            if frame.traits & EventTrait.BLOCKS_UPSTREAM:
                self.blocked.add(frame.channel)
            if frame.kind == END_OF_PARTITION:
                self._open_channels.discard(frame.channel)
        if isinstance(frame, Data):
            self._granted[frame.channel] -= frame.credit_count
            assert self._granted[frame.channel] >= 0
        elif isinstance(frame, Error):
            self._open_channels.discard(frame.channel)


def produce(sink: RecordWriter, act: str, blocked_count: int) -> None:
    """Do it, where it is an act of a producer."""
    partition = sink.partition
    may_write = sink.is_available and not partition.is_finished and not partition.pool.is_destroyed
    if act == "emit" and may_write:
        sink.emit(numbers(0, 10))
    elif act == "barrier" and may_write:
        barrier = CheckpointBarrier(blocked_count + 1, 0, CheckpointOptions())
        sink.emit_event(barrier, blocks_upstream=True)
    elif act == "finish" and not partition.pool.is_destroyed:
        sink.finish()
        sink.close()
    elif act == "fail":
        sink.fail(ValueError("no"))


@example([(act, 0) for act in BLOCKED_AND_RESUMED.split()])
@given(ACTS)
def test_every_order_of_events_ends_without_a_reader_or_a_segment(
    acts: list[tuple[str, int]],
) -> None:
    cluster = SimulatedCluster()
    environment, _ = cluster.start("a")
    session = ProducerSession(environment.partitions, environment.transport, NoLink(), 1000)
    sinks = [writer(environment, number=number, buffer_timeout_ms=0) for number in range(2)]
    peer = Peer(session)
    for act, index in acts:
        peer.act(act, index)
        if index < 2:
            produce(sinks[index], act, len(peer.blocked))
            if act == "release":
                environment.release_partitions([partition_id(index)])
        if act == "wait":
            cluster.loop.run_for(600)
        if act == "close" or peer.is_broken:
            break
    # At a violation of the protocol too the connection ends.
    session.close()
    assert not session._readers
    for sink in sinks:
        sink.close()
    environment.partitions.release_all()
    assert all(sink.partition.pool.used == 0 for sink in sinks)
    cluster.assert_nothing_leaks()


def test_what_is_asked_of_a_consumer_stays_so_behind_the_next_event() -> None:
    cluster = SimulatedCluster()
    environment, _ = cluster.start("a")
    session = ProducerSession(environment.partitions, environment.transport, NoLink(), 1000)
    sink = writer(environment)
    processed: list[bool] = []
    sink.partition.on_all_data_processed(lambda: processed.append(True))
    session.partition_requested(PartitionRequest(0, partition_id(), 0, 1, 100, 1 << 20))
    sink.emit_event(EndOfData())
    sink.emit_event(CheckpointBarrier(1, 0, CheckpointOptions()), blocks_upstream=True)
    session.take_output(1 << 16)
    sink.emit_barrier(CheckpointBarrier(2, 0, CheckpointOptions(alignment=AlignmentMode.UNALIGNED)))
    session.take_output(1 << 16)
    session.channel_message_received(ResumeConsumption(0))
    session.channel_message_received(AckAllUserRecordsProcessed(0))
    assert processed == [True]
    session.close()
    sink.close()
    environment.partitions.release_all()
    cluster.assert_nothing_leaks()


class CountingLink(NoLink):
    """Counts how often it was asked to have output taken."""

    def __init__(self) -> None:
        self.wake_count = 0

    def wake(self) -> None:
        self.wake_count += 1


class Served:
    """A session of one peer, whose frames are kept."""

    def __init__(self) -> None:
        self.cluster = SimulatedCluster()
        self.environment, _ = self.cluster.start("a")
        self.link = CountingLink()
        self.session = ProducerSession(
            self.environment.partitions, self.environment.transport, self.link, 1000
        )
        self._cutter = FrameSplitter("a")

    def request(self, channel: int, number: int) -> None:
        request = PartitionRequest(channel, partition_id(number), 0, 1, 100, 1 << 20)
        self.session.partition_requested(request)

    def frames(self) -> list[object]:
        data = b"".join(bytes(part) for part in self.session.take_output(1 << 16))
        return [cut.frame for cut in self._cutter.cut(data)]

    def close(self) -> None:
        self.session.close()
        self.environment.partitions.release_all()
        self.cluster.assert_nothing_leaks()


def test_the_answer_to_a_request_that_waited_leaves_at_once() -> None:
    served = Served()
    for channel in range(2):
        served.request(channel, channel)
    assert served.frames() == [] and served.link.wake_count == 0
    # By the time the request is looked at again, its producer has failed.
    writer(served.environment, number=0).fail(ValueError("a bad row"))
    served.cluster.loop.run_for(500)
    assert served.link.wake_count == 1
    (refused,) = served.frames()
    assert isinstance(refused, Error) and refused.code == ErrorCode.PRODUCER_FAILED
    served.cluster.loop.run_for(1000)
    assert served.link.wake_count == 2
    (missing,) = served.frames()
    assert isinstance(missing, Error) and missing.code == ErrorCode.PARTITION_NOT_FOUND
    assert (refused.channel, missing.channel, served.session.reader_count) == (0, 1, 0)
    served.close()


def test_a_session_that_has_ended_sends_nothing_and_keeps_nobody() -> None:
    served = Served()
    sink = writer(served.environment, buffer_timeout_ms=0)
    served.request(0, 0)
    served.request(1, 1)
    sink.emit(numbers(0, 10))
    for _ in range(2):
        served.session.close()
    assert served.session.reader_count == 0 and sink.partition.pool.used == 0
    late = writer(served.environment, number=1, buffer_timeout_ms=0)
    for each in (sink, late):
        each.emit(numbers(0, 10))
    served.cluster.loop.run_for(2000)
    assert served.frames() == []
    assert late.partition.queued_count == 1, "its consumer is yet to come"
    for each in (sink, late):
        each.close()
    served.close()
