"""Over sockets, a channel that is spoiled shares its connection with others, which finish exactly."""

from pathlib import Path

import pytest

from headrace.core.elements import CancelTaskException
from headrace.core.threads import start_thread
from headrace.network.errors import (
    CorruptBatchError,
    CreditOverspentError,
    NetworkError,
    SequenceGapError,
)
from headrace.network.transport.socket_transport import SocketTransport
from headrace.network.writers.record_writer import RecordWriter
from testkit.waiting import wait_until
from tests.integration.network.proxied import MakeEdge
from tests.integration.network.proxied import proxied as proxied
from tests.unit.network.exchange import drain, gate, next_element, numbers, values_of, writer

pytestmark = pytest.mark.integration
BAD = 1
CHANNELS = 4
BATCHES = 30


def produce(sink: RecordWriter, rows: int) -> None:
    try:
        for turn in range(BATCHES):
            sink.emit(numbers(turn * rows, rows))
            sink.flush_all()
        sink.finish()
    except CancelTaskException:
        pass


@pytest.mark.parametrize("rows", [10, 20_000])
@pytest.mark.parametrize(
    ("rule", "error"),
    [
        ("drop Data sequence=2", SequenceGapError),
        ("duplicate Data sequence=2", SequenceGapError),
        ("drop Schema", CorruptBatchError),
        ("corrupt Data sequence=2 at=28", CreditOverspentError),
    ],
)
@pytest.mark.parametrize("kind", ["tcp", "unix"])
def test_the_others_of_a_connection_finish_exactly_beside_a_spoiled_channel(
    proxied: MakeEdge,
    tmp_path: Path,
    kind: str,
    rule: str,
    error: type[NetworkError],
    rows: int,
) -> None:
    edge = proxied(
        f"{rule} channel={BAD}",
        socket_directory=tmp_path if kind == "unix" else None,
        headrace_network_checksum=False,
    )
    sinks = [writer(edge.producer, number=number) for number in range(CHANNELS)]
    sources = [gate(edge.consumer, [edge.location], first_number=n) for n in range(CHANNELS)]
    for source in sources:
        source.request_partitions()
    # Each by its own task, as the others must not wait for the spoiled one.
    tasks = [start_thread("produce", lambda sink=sink: produce(sink, rows)) for sink in sinks]
    with pytest.raises(error):
        while next_element(sources[BAD]) is not None:
            pass
    # Its producer was told to cancel, before the gate is closed: it runs free and comes to its end.
    tasks[BAD].join(20)
    assert not tasks[BAD].is_alive()
    for number in range(CHANNELS):
        if number != BAD:
            assert values_of(drain(sources[number])) == list(range(BATCHES * rows))
    assert isinstance(edge.consumer.transport, SocketTransport)
    assert len(edge.consumer.transport._connections) == 1
    assert len(edge.faults) == 1 and not edge.errors
    for source, task, sink in zip(sources, tasks, sinks, strict=True):
        source.close()
        task.join(20)
        sink.close()
    wait_until(lambda: edge.producer.partitions.partition_count == 0)
