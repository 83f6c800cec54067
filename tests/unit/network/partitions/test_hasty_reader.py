"""A reader that empties a subpartition right before its lock is taken: what was decided without the lock is wrong."""

import threading
from collections.abc import Callable
from typing import Any

import pytest

from headrace.core.barriers import AlignmentMode, CheckpointBarrier, CheckpointOptions
from headrace.core.elements import EndOfData
from headrace.network.errors import NetworkError
from headrace.network.partitions.pipelined_partition import PipelinedResultPartition
from headrace.network.partitions.result_subpartition import DataElement
from headrace.network.writers.record_writer import RecordWriter
from tests.unit.network.exchange import numbers, writer
from tests.unit.network.simulated import SimulatedCluster

UNALIGNED = CheckpointOptions(alignment=AlignmentMode.UNALIGNED)


class InterruptedLock:
    """A lock before which another thread has its turn, whoever takes it."""

    def __init__(self, before: Callable[[], None]) -> None:
        self._before = before
        self._lock = threading.Lock()
        self._is_interrupted = False

    def __enter__(self) -> None:
        if not self._is_interrupted:
            self._is_interrupted = True
            self._before()
            self._is_interrupted = False
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


class Reader:
    """Reads what is there whenever it has a turn; then sleeps until it is told."""

    def __init__(self, sink: RecordWriter) -> None:
        self.is_told = False
        self.values: list[int] = []
        self.events: list[object] = []
        self.error: NetworkError | None = None
        self._view = sink.partition.create_view(0, self._told, 1 << 62)

    def _told(self) -> None:
        self.is_told = True

    def read(self) -> None:
        self.is_told = False
        try:
            while (element := self._view.poll(1 << 62)) is not None:
                if isinstance(element, DataElement):
                    assert element.sealed.arrow is not None
                    self.values += element.sealed.arrow.column(0).to_pylist()
                    if element.lease is not None:
                        element.lease.release()
                else:
                    self.events.append(element)
        except NetworkError as error:
            self.error = error

    def leave(self) -> None:
        self._view.release()


def add_rows(sink: RecordWriter) -> None:
    sink.emit(numbers(1, 1))
    sink.flush_all()


ACTS: dict[str, Callable[[RecordWriter], Any]] = {
    "rows": add_rows,
    "an event": lambda sink: sink.emit_event(EndOfData()),
    "a barrier": lambda sink: sink.emit_barrier(CheckpointBarrier(7, 0)),
    "an unaligned barrier": lambda sink: sink.emit_barrier(CheckpointBarrier(7, 0, UNALIGNED)),
    "the end": lambda sink: sink.finish(),
    "a failure": lambda sink: sink.fail(ValueError("no")),
}


@pytest.mark.parametrize("act", ACTS)
def test_whoever_has_just_read_everything_is_told_of_what_comes_next(
    act: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = SimulatedCluster()
    producer, _ = cluster.start("a")
    sink = writer(producer)
    assert isinstance(sink.partition, PipelinedResultPartition)
    reader = Reader(sink)
    sink.emit(numbers(0, 1))
    sink.flush_all()
    (subpartition,) = sink.partition.subpartitions
    with monkeypatch.context() as patch:
        patch.setattr(subpartition, "_lock", InterruptedLock(reader.read))
        ACTS[act](sink)
    # It had read the first row when the lock was taken, and not what came under it.
    assert reader.values == [0]
    assert reader.is_told
    reader.read()
    assert len(reader.values) - 1 + len(reader.events) + (reader.error is not None) == 1
    reader.leave()
    sink.close()
    cluster.assert_nothing_leaks()
