"""Threads that add, flush, finish, fail, withdraw and read one subpartition at once.

No wake-up is lost, nothing is read twice or out of order, and every segment comes back.
"""

import sys
import threading
from collections.abc import Iterator
from functools import partial

import pytest

from headrace.core.elements import CancelTaskException, EndOfPartition
from headrace.core.randomness import SeededRandom
from headrace.core.threads import start_thread
from headrace.network.environment import CreditBasedShuffleEnvironment
from headrace.network.errors import NetworkError
from headrace.network.partitions.result_subpartition import (
    DataElement,
    QueuedEvent,
    ResultSubpartitionView,
)
from headrace.network.writers.record_writer import RecordWriter
from tests.unit.network.exchange import environment, numbers, writer

pytestmark = pytest.mark.integration

ROWS = 300


@pytest.fixture(autouse=True)
def hasty_threads() -> Iterator[None]:
    """Have threads take turns at nearly every step."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


@pytest.fixture
def node() -> Iterator[CreditBasedShuffleEnvironment]:
    made = environment("a")
    made.start()
    yield made
    made.close()


class Reader:
    """Sleeps until it is told, and reads then until nothing is left: a lost wake-up is one it never hears of."""

    def __init__(self, sink: RecordWriter) -> None:
        self._is_told = threading.Event()
        self.values: list[int] = []
        self.has_ended = False
        self.error: NetworkError | None = None
        self.view: ResultSubpartitionView = sink.partition.create_view(
            0, self._is_told.set, 1 << 62
        )

    def run(self) -> None:
        while not self.has_ended and self.error is None:
            assert self._is_told.wait(60), f"nobody said a word after {len(self.values)} rows"
            self._is_told.clear()
            try:
                while (element := self.view.poll(1 << 62)) is not None:
                    self._take(element)
            except NetworkError as error:
                self.error = error
        self.view.release()

    def _take(self, element: object) -> None:
        if isinstance(element, DataElement):
            assert element.sealed.arrow is not None
            self.values += element.sealed.arrow.column(0).to_pylist()
            if element.lease is not None:
                element.lease.release()
        else:
            assert isinstance(element, QueuedEvent)
            self.has_ended |= isinstance(element.event, EndOfPartition)


def produce(sink: RecordWriter, seed: int) -> None:
    """Emit rows one by one, some of them flushed, and end; whoever is stopped by another thread stops."""
    random = SeededRandom(seed)
    try:
        for value in range(ROWS):
            sink.emit(numbers(value, 1))
            if random.randrange(2):
                sink.flush_all()
        sink.finish()
    except CancelTaskException:
        pass
    sink.close()


def stop_amid(reader: Reader, seed: int, stop: partial[None]) -> None:
    """Stop the others at a moment of their own work, and not of a clock."""
    while len(reader.values) < seed * 10 % ROWS and not reader.has_ended:
        pass
    stop()


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("how", ["finish", "fail", "withdraw", "leave"])
def test_who_sleeps_until_it_is_told_reads_all_in_order_until_the_end_or_the_failure(
    node: CreditBasedShuffleEnvironment, how: str, seed: int
) -> None:
    sink = writer(node)
    reader = Reader(sink)
    threads = [
        start_thread("producer", partial(produce, sink, seed)),
        start_thread("reader", reader.run),
    ]
    stops = {
        "fail": partial(sink.fail, ValueError("enough")),
        "withdraw": partial(node.release_partitions, [sink.partition.partition_id]),
    }
    if how in stops:
        threads.append(start_thread("stopper", partial(stop_amid, reader, seed, stops[how])))
    elif how == "leave":
        threads.append(
            start_thread("stopper", partial(stop_amid, reader, seed, partial(sink.close)))
        )
    for thread in threads:
        thread.join(90)
        assert not thread.is_alive(), "somebody waits for ever"
    assert reader.values == list(range(len(reader.values)))
    assert reader.has_ended is (reader.error is None)
    if reader.has_ended:
        assert len(reader.values) == ROWS
    else:
        assert how != "finish"
    assert sink.partition.pool.used == 0
    assert node.partitions.partition_count == 0
    assert node.buffer_pool.count_idle_pages() == node.buffer_pool.total_pages
