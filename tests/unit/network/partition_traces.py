"""Traces of a producer, and the view that a consumer must have of them, for tests of all kinds of partitions."""

from dataclasses import dataclass

from hypothesis import strategies as st

from headrace.core.elements import EndOfData, StreamEvent, Watermark
from headrace.core.shuffle_descriptors import ReleaseBy, ResultPartitionType
from headrace.network.gates.gate import BatchElement, GateElement, InputGate
from headrace.network.writers.record_writer import RecordWriter
from tests.unit.network.exchange import numbers
from tests.unit.network.simulated import SimulatedCluster


@dataclass(frozen=True)
class Rows:
    """So many consecutive numbers."""

    count: int


@dataclass(frozen=True)
class Mark:
    """A watermark, one later than the one before."""


@dataclass(frozen=True)
class Flush:
    """What a buffer timeout does."""


Step = Rows | Mark | Flush
Seen = list[int | Watermark | StreamEvent]

steps = st.lists(
    st.one_of(
        st.builds(Rows, st.integers(1, 400)),
        st.builds(Rows, st.integers(3000, 20000)),
        st.just(Mark()),
        st.just(Flush()),
    ),
    max_size=12,
)
KINDS = tuple(ResultPartitionType)
STORED = tuple(kind for kind in KINDS if kind.traits.release_by is ReleaseBy.SCHEDULER)
"""Kinds whose batches lie in files until the JobMaster has them deleted."""


class Producer:
    """Performs a trace on a writer."""

    def __init__(self, sink: RecordWriter) -> None:
        self.sink = sink
        self._next_number = 0
        self._next_watermark = 0

    def perform(self, step: Step) -> None:
        match step:
            case Rows(count):
                self.sink.emit(numbers(self._next_number, count))
                self._next_number += count
            case Mark():
                self.sink.emit_marker(Watermark(self._next_watermark))
                self._next_watermark += 1
            case Flush():
                self.sink.flush_all()

    def end(self) -> None:
        self.sink.emit_event(EndOfData())
        self.sink.finish()
        self.sink.close()


class Consumer:
    """Reads a gate and keeps what it saw, not the batches: they pin the network memory they were received in.

    Rows, watermarks and events in order, however they were cut; of watermarks in a row the last one counts.
    """

    def __init__(self, source: InputGate) -> None:
        self.source = source
        self.seen: Seen = []
        source.request_partitions()

    @property
    def values(self) -> list[int]:
        return [element for element in self.seen if isinstance(element, int)]

    def poll_all(self) -> None:
        """Take everything that is there now."""
        while (element := self.source.poll()) is not None:
            self._take(element)

    def read_all(self, cluster: SimulatedCluster) -> Seen:
        """Read to the end."""
        while not self.source.is_finished:
            cluster.loop.run_until(lambda: self.source.is_available)
            self.poll_all()
        return self.seen

    def close(self) -> None:
        self.source.close()

    def _take(self, element: GateElement) -> None:
        if not isinstance(element, BatchElement):
            self.seen.append(element.event)
            return
        values = element.batch.columns().column(0).to_pylist() if element.batch.num_rows else []
        done = 0
        for placed in element.markers:
            assert isinstance(placed.marker, Watermark)
            self.seen += values[done : placed.row_offset]
            done = placed.row_offset
            if self.seen and isinstance(self.seen[-1], Watermark):
                self.seen.pop()
            self.seen.append(placed.marker)
        self.seen += values[done:]
