"""Wrong, dead and hostile peers: a named error, and nothing left behind."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest

from headrace.core.errors import PortInUseError
from headrace.core.ids import ResourceId
from headrace.core.security.hmac_handshake import Role
from headrace.core.shuffle_descriptors import TaskManagerLocation
from headrace.network.batches.sealed_batch import SchemaAnnouncer
from headrace.network.environment import CreditBasedShuffleEnvironment
from headrace.network.errors import (
    ConnectionLostError,
    CorruptBatchError,
    CreditOverspentError,
    NetworkError,
    PartitionConnectionError,
    ProtocolError,
    RecordTooLargeError,
    SequenceGapError,
)
from headrace.network.wire.frames import (
    NO_CHANNEL,
    AckAllUserRecordsProcessed,
    AddCredit,
    Cancel,
    Data,
    Error,
    ErrorCode,
    Event,
    KeepAlive,
    NewBufferSize,
    PartitionRequest,
    ResumeConsumption,
    Schema,
)
from headrace.network.wire.framing import PREFIX, Frame, encode
from testkit.waiting import wait_until
from tests.integration.network.conftest import Starter
from tests.integration.network.raw_peer import RawPeer
from tests.unit.network.exchange import gate, next_element, numbers, partition_id, values_of, writer

pytestmark = pytest.mark.integration
REQUEST = PartitionRequest(0, partition_id(9), 0, 2, 10, 1 << 20)
BATCH = pa.RecordBatch.from_arrays([pa.array([1, 2])], names=["value"])


@pytest.fixture
def listener() -> Iterator[tuple[socket.socket, TaskManagerLocation]]:
    """A place where a raw producer answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        yield server, TaskManagerLocation(ResourceId("raw"), "127.0.0.1", port, None, "elsewhere")


class RawProducer:
    """Serves one channel of a tested consumer by hand."""

    def __init__(
        self,
        consumer: CreditBasedShuffleEnvironment,
        listener: tuple[socket.socket, TaskManagerLocation],
    ) -> None:
        server, location = listener
        self.source = gate(consumer, [location])
        self.source.request_partitions()
        self.peer = RawPeer(server.accept()[0], Role.ACCEPTOR)
        self.request = self.peer.expect(PartitionRequest)
        message = SchemaAnnouncer().changed(BATCH.schema)
        assert message is not None
        announcer = SchemaAnnouncer()
        announcer.changed(BATCH.schema)
        self.fingerprint = announcer.fingerprint
        self.schema = Schema(self.request.channel, self.fingerprint, message)

    def data(self, sequence: int, credit_count: int = 1, body: bytes | None = None) -> Data:
        content = BATCH.serialize().to_pybytes() if body is None else body
        return Data(
            self.request.channel, sequence, credit_count, 0, 2, self.fingerprint, (), content
        )

    def close(self) -> None:
        self.source.close()
        self.peer.close()


@pytest.fixture
def producer(
    start: Starter, listener: tuple[socket.socket, TaskManagerLocation]
) -> Iterator[RawProducer]:
    consumer = start("b")
    consumer.start()
    raw = RawProducer(consumer, listener)
    yield raw
    raw.close()


def test_a_well_behaved_raw_producer_is_read(producer: RawProducer) -> None:
    producer.peer.send(
        producer.schema, producer.data(0), Event(producer.request.channel, 1, 0, 2, 0, 0)
    )
    element = next_element(producer.source)
    assert values_of([element] if element else []) == [1, 2]
    next_element(producer.source)
    assert producer.source.is_finished


@pytest.mark.parametrize("sequences", [[1], [0, 0], [0, 2]])
def test_a_lost_or_doubled_element_is_detected(producer: RawProducer, sequences: list[int]) -> None:
    producer.peer.send(producer.schema, *(producer.data(sequence) for sequence in sequences))
    with pytest.raises(SequenceGapError, match="expected element"):
        while True:
            next_element(producer.source)
    assert producer.peer.expect(Cancel).channel == producer.request.channel


def test_overspent_credit_is_detected(producer: RawProducer) -> None:
    producer.peer.send(producer.schema, producer.data(0, credit_count=1000))
    with pytest.raises(CreditOverspentError, match="was sent data for 1000"):
        next_element(producer.source)


def test_a_body_larger_than_what_it_pays_for_is_refused(producer: RawProducer) -> None:
    huge = producer.data(0, body=b"")
    layout = Data.LAYOUT.pack(*huge.header_values())
    prefix = PREFIX.pack(0x48445257, 1, Data.FRAME_ID, 0, len(layout), 0xFFFF_FFFF)
    producer.peer.send(producer.schema)
    producer.peer.socket.sendall(prefix + layout)
    with pytest.raises(
        ProtocolError, match="a batch of 4294967295 bytes does not fit the 1 segment"
    ):
        next_element(producer.source)


def test_garbage_is_detected(producer: RawProducer) -> None:
    producer.peer.socket.sendall(b"garbage" * 100)
    with pytest.raises(ProtocolError, match="the bytes are not a frame"):
        next_element(producer.source)
    assert producer.peer.expect(Error).channel == NO_CHANNEL
    assert producer.peer.is_closed()


def test_a_corrupt_batch_is_detected(producer: RawProducer) -> None:
    producer.peer.send(producer.schema, producer.data(0, body=b"x" * 300))
    with pytest.raises(CorruptBatchError, match="by raw"):
        next_element(producer.source)


def test_a_batch_without_its_schema_is_detected(producer: RawProducer) -> None:
    producer.peer.send(producer.data(0))
    with pytest.raises(CorruptBatchError, match="which was not announced"):
        next_element(producer.source)


def test_a_producer_that_dies_within_a_frame_is_noticed(producer: RawProducer) -> None:
    frame = b"".join(bytes(part) for part in encode(producer.data(0, body=b"x" * 100_000)))
    producer.peer.send(producer.schema)
    producer.peer.socket.sendall(frame[:50_000])
    producer.peer.close()
    with pytest.raises(ConnectionLostError, match="task manager raw was lost"):
        next_element(producer.source)


def test_a_channel_error_says_what_the_producer_said(producer: RawProducer) -> None:
    producer.peer.send(Error(producer.request.channel, ErrorCode.RECORD_TOO_LARGE, b"too large"))
    with pytest.raises(NetworkError, match="from task manager raw: too large"):
        next_element(producer.source)


@pytest.mark.parametrize(
    "frames",
    [
        [PartitionRequest(0, partition_id(), 0, 2, 10, 1 << 20)] * 2,
        [PartitionRequest(0, partition_id(), 0, 0, 10, 1 << 20)],
        [REQUEST, Cancel(0), REQUEST],
        [REQUEST, AddCredit(0, 0)],
        [REQUEST, AddCredit(0, 9)],
        [REQUEST, ResumeConsumption(0)],
        [REQUEST, AckAllUserRecordsProcessed(0)],
        [REQUEST, NewBufferSize(0, 0)],
        [Data(0, 0, 1, 0, 0, 0, (), b"x")],
        [Event(0, 0, 0, 2, 0, 0)],
        [Data(0, 0, 1, 0, 0, 0, (), b"x" * 100_000_000)],
        [Error(0, ErrorCode.PROTOCOL, b"x" * 70_000)],
    ],
)
def test_a_consumer_that_breaks_the_protocol_is_disconnected(
    start: Starter, frames: list[Frame]
) -> None:
    peer = RawPeer.dial(start("a").start())
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        peer.send(*frames)
    assert peer.is_closed()
    peer.close()


@pytest.mark.parametrize(
    ("index", "what"), [(7, b"7 was requested"), (0, b"already had a consumer")]
)
def test_a_subpartition_that_cannot_be_had_is_refused(
    start: Starter, index: int, what: bytes
) -> None:
    producer = start("a")
    location = producer.start()
    sink = writer(producer)
    source = gate(producer, [location])
    source.request_partitions()
    peer = RawPeer.dial(location)
    peer.send(PartitionRequest(0, partition_id(), index, 2, 10, 1 << 20))
    assert what in bytes(peer.expect(Error).body)
    peer.close()
    sink.finish()
    sink.close()
    next_element(source)
    source.close()


def test_credit_for_a_channel_that_has_ended_is_ignored(start: Starter) -> None:
    producer = start("a")
    location = producer.start()
    sink = writer(producer)
    peer = RawPeer.dial(location)
    peer.send(AddCredit(77, 3), Cancel(78), PartitionRequest(0, partition_id(), 0, 2, 10, 1 << 20))
    sink.emit(numbers(0, 2))
    sink.finish()
    sink.close()
    assert peer.expect(Data).row_count == 2
    peer.expect(Event)
    peer.close()
    wait_until(lambda: producer.partitions.partition_count == 0)


def test_a_producer_spends_no_more_than_it_was_granted(start: Starter) -> None:
    producer = start("a")
    location = producer.start()
    sink = writer(producer, buffer_timeout_ms=0)
    peer = RawPeer.dial(location)
    peer.send(PartitionRequest(0, partition_id(), 0, 2, 10, 1 << 20))
    for number in range(5):
        sink.emit(numbers(number, 1))
    sequences = [peer.expect(Data).sequence for _ in range(2)]
    peer.socket.settimeout(0.1)
    with pytest.raises(TimeoutError):
        peer.expect(Data)
    peer.socket.settimeout(10)
    peer.send(AddCredit(0, 2))
    sequences += [peer.expect(Data).sequence for _ in range(2)]
    assert sequences == [0, 1, 2, 3]
    peer.close()
    sink.close()
    wait_until(lambda: producer.partitions.partition_count == 0)


def test_a_row_that_its_consumer_can_never_hold_is_an_error(start: Starter) -> None:
    producer = start("a")
    location = producer.start()
    sink = writer(producer, buffer_timeout_ms=0)
    peer = RawPeer.dial(location)
    peer.send(PartitionRequest(0, partition_id(), 0, 2, 2, 64))
    sink.emit(numbers(0, 1))
    error = peer.expect(Error)
    assert error.code == ErrorCode.RECORD_TOO_LARGE
    assert b"taskmanager.memory.segment-size" in bytes(error.body)
    assert issubclass(RecordTooLargeError, NetworkError)
    peer.close()
    sink.close()


def test_a_peer_that_says_nothing_is_disconnected_after_the_timeout(start: Starter) -> None:
    location = start("a", headrace_network_handshake__timeout="50 ms").start()
    with socket.create_connection((location.host, location.data_port), timeout=10) as silent:
        assert silent.recv(1) == b""


def test_a_peer_that_goes_silent_is_told_of_life_and_given_up(start: Starter) -> None:
    # Between the two a busy machine must let the network's thread run once.
    options = {"interval": "10 ms", "timeout": "500 ms"}
    location = start(
        "a", **{f"headrace_network_keepalive_{key}": value for key, value in options.items()}
    ).start()
    peer = RawPeer.dial(location)
    peer.expect(KeepAlive)
    assert peer.is_closed()
    peer.close()


def test_an_impostor_at_the_address_is_refused(start: Starter) -> None:
    other, consumer = start("other"), start("b")
    there = other.start()
    consumer.start()
    location = msgspec.structs.replace(there, resource_id=ResourceId("a"))
    source = gate(consumer, [location])
    source.request_partitions()
    with pytest.raises(PartitionConnectionError, match="other answered instead of a"):
        next_element(source)
    source.close()


def test_a_closed_port_is_a_connection_error(
    start: Starter, listener: tuple[socket.socket, TaskManagerLocation]
) -> None:
    server, location = listener
    server.close()
    consumer = start("b")
    consumer.start()
    source = gate(consumer, [location])
    source.request_partitions()
    with pytest.raises(PartitionConnectionError, match="cannot connect to task manager raw"):
        next_element(source)
    source.close()


def test_a_port_in_use_is_named_with_its_option(start: Starter) -> None:
    location = start("a").start()
    with pytest.raises(PortInUseError, match=r"taskmanager\.data\.port"):
        start("b", taskmanager_data_port=location.data_port).start()


def test_the_first_free_port_of_a_range_is_taken(start: Starter) -> None:
    taken = start("a").start().data_port
    location = start("b", taskmanager_data_port=f"{taken},0").start()
    assert location.data_port not in (taken, 0)


def test_a_range_without_a_free_port_is_named_whole(start: Starter) -> None:
    ports = [start(name).start().data_port for name in ("a", "b")]
    text = ",".join(map(str, ports))
    with pytest.raises(PortInUseError, match=rf"every port of {text} .*taskmanager\.data\.port"):
        start("c", taskmanager_data_port=text).start()


def test_a_unix_socket_that_cannot_be_reached_falls_back_to_tcp(
    start: Starter, tmp_path: Path
) -> None:
    producer, consumer = start("a", tmp_path), start("b")
    location = producer.start()
    consumer.start()
    hidden = msgspec.structs.replace(location, unix_socket_path=str(tmp_path / "elsewhere.sock"))
    sink, source = writer(producer), gate(consumer, [hidden])
    source.request_partitions()
    sink.emit(numbers(0, 3))
    sink.finish()
    sink.close()
    element = next_element(source)
    assert values_of([element] if element else []) == [0, 1, 2]
    next_element(source)
    source.close()


def test_the_unix_socket_is_private_and_removed(start: Starter, tmp_path: Path) -> None:
    producer = start("a", tmp_path)
    path = Path(producer.start().unix_socket_path or "")
    assert path.stat().st_mode & 0o777 == 0o600
    producer.close()
    assert not path.exists()


def test_a_killed_producer_process_is_noticed_and_nothing_leaks(start: Starter) -> None:
    consumer = start("b")
    consumer.start()
    program = (
        "import sys, msgspec\n"
        "from tests.unit.network.exchange import environment, writer, numbers\n"
        "env = environment('a')\n"
        "print(msgspec.json.encode(env.start()).decode(), flush=True)\n"
        "sink = writer(env)\n"
        "while True: sink.emit(numbers(0, 20000))\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        location = msgspec.json.decode(process.stdout.readline(), type=TaskManagerLocation)
        source = gate(consumer, [location])
        source.request_partitions()
        for _ in range(5):
            next_element(source)
        os.kill(process.pid, signal.SIGKILL)
        with pytest.raises(ConnectionLostError, match="task manager a was lost"):
            while True:
                next_element(source)
    source.close()
