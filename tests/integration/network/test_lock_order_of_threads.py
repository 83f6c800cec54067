"""Locks of the exchange between real threads and over sockets; see tests/unit/network."""

import threading

from headrace.core.elements import CancelTaskException
from headrace.core.threads import start_thread
from headrace.network.errors import NetworkError
from headrace.network.gates.gate import BatchElement
from headrace.network.gates.single_input_gate import SingleInputGate
from headrace.network.writers.record_writer import RecordWriter
from tests.unit.network.exchange import environment, gate, next_element, numbers, values_of, writer
from tests.unit.network.lock_order import assert_lawful, watched_locks

ROWS = 60_000


def test_producers_consumers_and_cancellers_of_two_processes_never_take_locks_in_a_circle() -> None:
    with watched_locks() as order:
        nodes = [environment(name) for name in ("a", "b")]
        locations = [node.start() for node in nodes]
        sinks = [writer(node, 2, buffer_timeout_ms=0, number=k) for k, node in enumerate(nodes)]
        sources = [gate(node, locations, k) for k, node in enumerate(nodes)]
        received: list[list[int]] = [[], []]
        are_amid = [threading.Event() for _ in nodes]

        def produce(sink: RecordWriter) -> None:
            try:
                for start in range(0, ROWS, 500):
                    sink.emit(numbers(start, 500))
                sink.finish()
            except CancelTaskException:
                pass
            sink.close()

        def consume(index: int, source: SingleInputGate) -> None:
            source.request_partitions()
            heard_of: set[int] = set()
            try:
                while (element := next_element(source)) is not None:
                    if isinstance(element, BatchElement):
                        received[index] += values_of([element])
                        heard_of.add(element.channel_index)
                    if len(heard_of) == len(nodes) and len(received[index]) > ROWS // 8:
                        are_amid[index].set()
            except (CancelTaskException, NetworkError):
                pass
            source.close()

        threads = [start_thread(f"producer {k}", lambda k=k: produce(sinks[k])) for k in range(2)]
        threads += [start_thread(f"consumer {k}", lambda k=k: consume(k, sources[k])) for k in range(2)]  # fmt: skip
        # Both hear of both by then: a result that nobody has asked for is kept, and its producer waits for who will.
        assert all(is_amid.wait(30) for is_amid in are_amid)
        # Cancellers come from threads of their own, in the middle of it.
        threads.append(start_thread("canceller", lambda: (sources[0].close(), sinks[1].fail(None))))
        for thread in threads:
            thread.join(30)
            assert not thread.is_alive(), "nothing may wait for ever"
        for node in nodes:
            node.close()
    assert {"ReadyChannels", "PipelinedSubpartition", "NetworkBufferPool"} <= order.names
    assert_lawful(order)
    for node in nodes:
        pool = node.buffer_pool
        assert pool.count_idle_pages() == pool.total_pages
