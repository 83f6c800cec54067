"""RecordWriter: what one call seals is handed over together, before it waits, and lost to nobody."""

import pytest

from headrace.graph.job_graph import PartitionerKind
from headrace.network.batches.sealed_batch import SealedBatch
from headrace.network.errors import StorageError
from headrace.network.memory.local_buffer_pool import SegmentLease
from tests.unit.network.writer_edge import edge, keyed


def test_batches_that_one_call_seals_are_handed_over_when_all_of_them_are_sealed() -> None:
    made = edge(channel_count=4, kind=PartitionerKind.HASH, timeout_ms=0)
    made.writer.emit(keyed(0, 100))
    assert made.segments_when_notified == [4, 4, 4, 4]


def test_what_is_sealed_is_handed_over_before_its_writer_waits_for_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = edge(channel_count=4, kind=PartitionerKind.HASH, timeout_ms=0, overdraft=0)
    partition = made.writer.partition
    handed_over: list[list[int]] = []
    monkeypatch.setattr(partition, "make_room", lambda: handed_over.append([*made.notified]))
    others = [partition.pool.lease(1) for _ in range(partition.pool.maximum - 2)]
    with pytest.raises(AssertionError, match="would block on network memory"):
        made.writer.emit(keyed(0, 100))
    assert handed_over == [[0, 1]]
    assert partition.pool.used == len(others) + 2


def test_segments_of_what_cannot_be_handed_over_are_given_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = edge(channel_count=4, kind=PartitionerKind.HASH, timeout_ms=0)
    partition = made.writer.partition
    emit = partition.emit

    def fail_behind_channel_0(index: int, sealed: SealedBatch, lease: SegmentLease) -> None:
        emit(index, sealed, lease)
        if index:
            raise StorageError("(a disk)", "it is full")

    monkeypatch.setattr(partition, "emit", fail_behind_channel_0)
    with pytest.raises(StorageError):
        made.writer.emit(keyed(0, 100))
    assert partition.pool.used == 2
