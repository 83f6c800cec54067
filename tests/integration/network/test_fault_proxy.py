"""Damage to frames between two sockets: a named error or nothing at all, and nothing left behind."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from headrace.core.elements import CancelTaskException, EndOfData, EndOfPartition, Watermark
from headrace.core.security.tls import TlsIdentity
from headrace.core.shuffle_descriptors import TaskManagerLocation
from headrace.core.threads import start_thread
from headrace.network.errors import (
    ConnectionLostError,
    CorruptBatchError,
    CorruptFrameError,
    NetworkError,
    PartitionConnectionError,
    ProtocolError,
    SequenceGapError,
)
from headrace.network.gates.gate import GateElement
from headrace.network.writers.record_writer import RecordWriter
from testkit.waiting import wait_until
from tests.integration.network.proxied import MakeEdge, ProxiedEdge
from tests.integration.network.proxied import proxied as proxied
from tests.unit.network.exchange import (
    drain,
    events_of,
    gate,
    next_element,
    numbers,
    values_of,
    writer,
)

pytestmark = pytest.mark.integration


def send(sink: RecordWriter, batch_count: int, rows: int = 10) -> None:
    """Write batches, one frame each, and end; as a task would, giving way to cancellation."""
    try:
        for number in range(batch_count):
            sink.emit(numbers(number * rows, rows))
            sink.emit_marker(Watermark(number))
            sink.flush_all()
        sink.emit_event(EndOfData())
        sink.finish()
    except CancelTaskException:
        pass


def exchange(edge: ProxiedEdge, batch_count: int = 6, rows: int = 10) -> list[GateElement]:
    """Send batches across; return what came, or raise what went wrong. Everything is closed either way."""
    sink, source = writer(edge.producer), gate(edge.consumer, [edge.location])
    source.request_partitions()
    producing = start_thread("producing", lambda: send(sink, batch_count, rows))
    try:
        return drain(source)
    finally:
        source.close()
        edge.close_proxy()
        sink.close()
        producing.join(10)
        # The connection is gone or was left on purpose: either way the producer has let go of its partition.
        edge.producer.release_partitions([sink.partition.partition_id])


def assert_complete(elements: list[GateElement], batch_count: int = 6, rows: int = 10) -> None:
    assert values_of(elements) == list(range(batch_count * rows))
    assert events_of(elements) == [EndOfData(), EndOfPartition()]


# --- what must change nothing ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "rule",
    [
        None,
        "fragment",
        "fragment size=17B",
        "coalesce within=5ms",
        "delay by=1ms jitter=5ms",
        "throttle 256KiB/s",
        "drop Data channel=77",
        "stall for=20ms nth=3",
    ],
)
@pytest.mark.parametrize("kind", ["tcp", "unix", "without checksums"])
def test_cutting_joining_and_slowing_the_stream_changes_nothing(
    proxied: MakeEdge, tmp_path: Path, kind: str, rule: str | None
) -> None:
    edge = proxied(
        *([] if rule is None else [rule]),
        socket_directory=tmp_path if kind == "unix" else None,
        headrace_network_checksum=kind != "without checksums",
    )
    assert_complete(exchange(edge, 20), 20)
    assert not edge.errors
    assert bool(edge.faults) == (rule is not None and "77" not in rule)


def test_large_batches_pass_in_pieces(proxied: MakeEdge) -> None:
    edge = proxied("fragment size=1000B Data every=2", "coalesce size=256KiB Data every=3")
    assert_complete(exchange(edge, 12, 20_000), 12, 20_000)


# --- what must be detected ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rule", "error", "text"),
    [
        ("drop Data sequence=2", SequenceGapError, "expected element 2 and received 3"),
        ("drop Data sequence=5", SequenceGapError, "expected element 5 and received 6"),
        ("duplicate Data sequence=2", SequenceGapError, "expected element 3 and received 2"),
        ("duplicate Event nth=1", SequenceGapError, "expected element"),
        ("reorder Data sequence=2", SequenceGapError, "expected element 2 and received 3"),
        ("drop Schema", CorruptBatchError, "which was not announced"),
        ("drop Event nth=1", SequenceGapError, "expected element"),
        ("corrupt Data sequence=2 at=0", ProtocolError, "not a frame"),
        ("corrupt Data sequence=2 at=4", ProtocolError, "a frame has version"),
        ("corrupt Data sequence=2 at=5", ProtocolError, "protocol violation by a"),
    ],
)
@pytest.mark.parametrize("has_checksums", [True, False])
def test_a_spoiled_stream_is_detected_before_anything_wrong_is_delivered(
    proxied: MakeEdge, rule: str, error: type[NetworkError], text: str, has_checksums: bool
) -> None:
    edge = proxied(rule, headrace_network_checksum=has_checksums)
    with pytest.raises(error, match=text):
        exchange(edge)
    assert len(edge.faults) == 1


def test_a_spoiled_schema_is_detected_also_without_checksums(proxied: MakeEdge) -> None:
    edge = proxied("corrupt Schema at=40", headrace_network_checksum=False)
    with pytest.raises(CorruptBatchError, match="schema"):
        exchange(edge)


@pytest.mark.parametrize("at", [*range(12, 16), *range(16, 48, 3), 48, 52, 53, 60, 61, 66, 69, 200])
def test_a_bit_turned_over_in_fields_markers_or_rows_is_detected_by_the_checksums(
    proxied: MakeEdge, at: int
) -> None:
    # 16 bytes of prefix, 32 of fields, 13 for the watermark, 8 of checksums, then the rows.
    assert_detected(proxied(f"corrupt Data sequence=2 at={at}"), 20)


@pytest.mark.parametrize("rule", ["Event nth=1", "Event nth=2", "Schema"])
@pytest.mark.parametrize("at", [16, 20, 30, 33, 41])
def test_a_bit_turned_over_in_a_schema_or_an_event_is_detected_by_the_checksums(
    proxied: MakeEdge, rule: str, at: int
) -> None:
    assert_detected(proxied(f"corrupt {rule} at={at}"), 0 if rule == "Schema" else 40)


@pytest.mark.parametrize("at", [56, 600, 16_384, 100_000, 160_000])
def test_a_bit_turned_over_in_a_large_body_is_detected_by_the_checksums(
    proxied: MakeEdge, at: int
) -> None:
    # Batch, watermark, batch: each is a frame of its own.
    assert_detected(proxied(f"corrupt Data sequence=2 at={at}"), 20_000, rows=20_000)


def assert_detected(edge: ProxiedEdge, sound_count: int, rows: int = 10) -> None:
    """Send four batches, of which a frame is spoiled: nothing but a part of the sound rows comes, then the error."""
    sink, source = writer(edge.producer), gate(edge.consumer, [edge.location])
    source.request_partitions()
    producing = start_thread("producing", lambda: send(sink, 4, rows))
    elements: list[GateElement] = []
    with pytest.raises(CorruptFrameError, match="was changed in transit"):
        while (element := next_element(source)) is not None:
            elements.append(element)
    source.close()
    sink.close()
    producing.join(10)
    edge.producer.release_partitions([sink.partition.partition_id])
    assert len(edge.faults) == 1
    values = values_of(elements)
    assert values == list(range(len(values))) and len(values) <= sound_count


def test_a_request_that_comes_twice_is_refused_by_name(proxied: MakeEdge) -> None:
    edge = proxied("duplicate PartitionRequest")
    sink, source = writer(edge.producer), gate(edge.consumer, [edge.location])
    source.request_partitions()
    with pytest.raises(
        ConnectionLostError, match="it ended the connection: protocol violation by b"
    ):
        next_element(source)
    source.close()
    sink.close()
    edge.producer.release_partitions([sink.partition.partition_id])


@pytest.mark.parametrize("at", [*range(12), *range(20, 28)])
def test_a_bit_turned_over_in_prefix_or_sequence_never_delivers_other_rows(
    proxied: MakeEdge, at: int
) -> None:
    edge = proxied(f"corrupt Data sequence=2 at={at}", "cut Event nth=1")
    source, sink = gate(edge.consumer, [edge.location]), writer(edge.producer)
    source.request_partitions()
    send(sink, 4)
    sink.close()
    elements: list[GateElement] = []
    with pytest.raises((ProtocolError, ConnectionLostError)):
        while (element := next_element(source)) is not None:
            elements.append(element)
    rows = values_of(elements)
    assert rows == list(range(len(rows)))
    source.close()
    wait_until(lambda: edge.producer.partitions.partition_count == 0)


def test_credit_that_was_not_given_is_detected(proxied: MakeEdge) -> None:
    # The consumer has two segments; the producer hears of each that comes free fifty times, and of all at once: else it
    # might send for the first before it hears of the others, and the consumer would be the one to complain.
    edge = proxied(
        "duplicate AddCredit copies=49",
        "coalesce AddCredit within=5ms",
        taskmanager_network_memory_floating__buffers__per__gate=0,
    )
    sink, source = writer(edge.producer), gate(edge.consumer, [edge.location])
    source.request_partitions()
    producing = start_thread("producing", lambda: send(sink, 60))
    wait_until(lambda: not sink.is_available)
    # By the producer, which says so and hangs up.
    with pytest.raises(
        ConnectionLostError, match=r"it ended the connection: .* grants \d+ credits and can hold"
    ):
        drain(source)
    source.close()
    sink.close()
    producing.join(10)
    edge.producer.release_partitions([sink.partition.partition_id])


# --- dead and half-dead links ---------------------------------------------------------------------


def ends_well(edge: ProxiedEdge, batch_count: int) -> str:
    """Run an exchange and return how it ended: complete, or with one named error."""
    try:
        assert_complete(exchange(edge, batch_count), batch_count)
    except NetworkError as error:
        return type(error).__name__
    return "complete"


@pytest.mark.parametrize("at", [0, 1, 16, 30])
def test_a_connection_that_ends_at_any_frame_ends_in_data_or_one_error(
    proxied: MakeEdge, at: int
) -> None:
    # Backward: Schema, 3 × Data, 2 × Event. Forward: PartitionRequest, some AddCredit, Close.
    for direction in ("backward", "forward"):
        for nth in range(1, 9):
            edge = proxied(f"cut {at} direction={direction} nth={nth}")
            ended = ends_well(edge, 3)
            assert ended in ("complete", "ConnectionLostError", "PartitionConnectionError")
            if not edge.faults:
                assert ended == "complete", f"{direction} {nth}"
            if direction == "backward" and nth <= 5:
                assert ended == "ConnectionLostError"


def test_a_cut_within_a_large_body_is_noticed(proxied: MakeEdge) -> None:
    edge = proxied("cut 100000 Data sequence=1")
    with pytest.raises(ConnectionLostError, match="task manager a was lost"):
        exchange(edge, 3, 20_000)


def test_a_request_that_is_lost_can_be_closed(proxied: MakeEdge) -> None:
    edge = proxied("drop PartitionRequest")
    sink, source = writer(edge.producer), gate(edge.consumer, [edge.location])
    source.request_partitions()
    wait_until(lambda: bool(edge.faults))
    assert source.poll() is None
    source.close()
    sink.close()
    edge.producer.release_partitions([sink.partition.partition_id])


def test_a_link_that_carries_nothing_back_pressures_and_lets_go(proxied: MakeEdge) -> None:
    edge = proxied("stall Data sequence=1")
    sink, source = writer(edge.producer), gate(edge.consumer, [edge.location])
    source.request_partitions()
    producing = start_thread("producing", lambda: send(sink, 500))
    element = next_element(source)
    assert values_of([element] if element else []) == list(range(10))
    wait_until(lambda: not sink.is_available)
    assert source.poll() is None
    source.close()
    sink.close()
    producing.join(10)
    edge.producer.release_partitions([sink.partition.partition_id])


def test_a_half_open_link_is_noticed_within_the_time_out(proxied: MakeEdge) -> None:
    # The connection stays up, but what either side says from its first frame on is held back for ever.
    edge = proxied(
        "stall",
        headrace_network_keepalive_interval="100 ms",
        headrace_network_keepalive_timeout="400 ms",
    )
    sink, source = writer(edge.producer), gate(edge.consumer, [edge.location])
    source.request_partitions()
    with pytest.raises(ConnectionLostError, match="task manager a was lost"):
        next_element(source)
    source.close()
    sink.close()
    edge.producer.release_partitions([sink.partition.partition_id])
    assert edge.faults, "the request was not even sent"


def test_a_producer_killed_within_a_frame_is_noticed(proxied: MakeEdge) -> None:
    program = (
        "import msgspec\n"
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
        there = msgspec.json.decode(process.stdout.readline(), type=TaskManagerLocation)
        # The fourth batch is still on its way through the proxy when its sender dies.
        edge = proxied("throttle 64KiB/s Data sequence=3", there=there)
        source = gate(edge.consumer, [edge.location])
        source.request_partitions()
        for _ in range(3):
            next_element(source)
        wait_until(lambda: bool(edge.faults))
        os.kill(process.pid, signal.SIGKILL)
        edge.close_proxy()
        with pytest.raises(ConnectionLostError, match="task manager a was lost"):
            while True:
                next_element(source)
    source.close()


# --- neighbours -----------------------------------------------------------------------------------


def test_a_reader_that_stalls_does_not_hold_up_its_neighbours(proxied: MakeEdge) -> None:
    edge = proxied("fragment size=4KiB")
    sinks = [writer(edge.producer, number=number) for number in range(2)]
    stalling, neighbour = (
        gate(edge.consumer, [edge.location], first_number=number) for number in range(2)
    )
    stalling.request_partitions()
    neighbour.request_partitions()
    stalled = start_thread("stalled", lambda: send(sinks[0], 400, 1000))
    flowing = start_thread("flowing", lambda: send(sinks[1], 400, 1000))
    elements = drain(neighbour)
    assert_complete(elements, 400, 1000)
    # Its neighbour is through while it has not read a row, and what waits for it stayed within its credit.
    assert not sinks[0].is_available
    assert edge.proxy.open_count == 1
    neighbour.close()
    stalling.close()
    for sink in sinks:
        sink.close()
    stalled.join(10)
    flowing.join(10)
    edge.producer.release_partitions([sink.partition.partition_id for sink in sinks])


# --- connections that cannot be proxied -----------------------------------------------------------


def test_a_tls_connection_is_refused_with_what_to_do(
    proxied: MakeEdge, identity: TlsIdentity
) -> None:
    edge = proxied("drop Data", tls=identity)
    source = gate(edge.consumer, [edge.location])
    source.request_partitions()
    with pytest.raises(PartitionConnectionError):
        next_element(source)
    source.close()
    assert len(edge.errors) == 1
    assert "this is a TLS connection" in edge.errors[0]


def test_a_target_that_is_not_there_is_named(proxied: MakeEdge) -> None:
    edge = proxied()
    target = edge.proxy.target
    edge.producer.close()
    source = gate(edge.consumer, [edge.location])
    source.request_partitions()
    with pytest.raises(PartitionConnectionError):
        next_element(source)
    source.close()
    assert edge.errors and f"{target} cannot be reached" in edge.errors[0]
