"""How fast does a sort-merge result go to the disk and come back, against the disk's own sequential speed?

One partition of 128 consumers is written by key, then read by its consumers one after the other, as by tasks of the
same process. The ceiling is one file of the same size, written and read in blocks of 8 MiB. Both end with the data on
the disk (fdatasync), and both begin reading with nothing of it in memory (posix_fadvise). They take turns; the best
turn of each counts. A disk that others use at the same time differs by the factor five from turn to turn.

    python -m benchmarks.sort_merge [--mib 512] [--turns 3] [--codec NONE] [--directory DIR]
"""

import argparse
import os
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.record import record_result
from headrace.core.clock import SystemClock
from headrace.core.config import Settings
from headrace.core.ids import (
    ExecutionAttemptId,
    ExecutionVertexId,
    IntermediateDataSetId,
    JobId,
    JobVertexId,
    ResultPartitionId,
)
from headrace.core.record_batch import BatchType, RecordBatch
from headrace.core.shuffle_descriptors import ResultPartitionDescriptor, ResultPartitionType
from headrace.core.types.type_info import Types
from headrace.network.buffer_pool import BlockingWait, NetworkBufferPool
from headrace.network.io_pool import ThreadIoPool
from headrace.network.partition_factory import ResultPartitionFactory
from headrace.network.partitioner import KeyGroupSelector
from headrace.network.sorting_writer import create_record_writer
from headrace.network.spill_files import SpillDirectories
from headrace.network.stored_partition import PartitionOwner, PartitionStorage
from headrace.network.stored_view import ReadMemory
from headrace.network.subpartition import LOCAL_SEGMENT_BYTES, EventElement, SubpartitionView

CONSUMERS, ROWS = 128, 8192
BLOCK_BYTES = 8 << 20
TYPE = BatchType(Types.LONG(), Types.LONG())


def make_batches(count: int) -> list[RecordBatch]:
    """Batches of 8192 rows with eight columns of noise."""
    random = np.random.default_rng(1)
    batches: list[RecordBatch] = []
    for _ in range(count):
        columns = [pa.array(random.integers(0, 2**62, ROWS)) for _ in range(8)]
        keys = random.integers(0, 2**31 - 1, ROWS).astype(np.int32)
        data = pa.RecordBatch.from_arrays(columns, names=[f"c{n}" for n in range(8)])
        batch = RecordBatch.of_columns(TYPE, data)
        batches.append(batch.with_keys(Types.LONG(), keys, keys_array=pa.array(keys)))
    return batches


class OurTurn:
    """A TaskManager's storage with one partition."""

    def __init__(self, directory: Path, codec: str) -> None:
        io = ThreadIoPool("benchmark")
        settings = Settings(
            {"io.tmp.dirs": str(directory), "taskmanager.network.compression.codec": codec}
        )
        self.directories = SpillDirectories.from_settings(settings, io.submit)
        self.storage = PartitionStorage(io, self.directories, ReadMemory(64 << 20))
        owner = PartitionOwner(lambda _: None, lambda _, __: None)
        factory = ResultPartitionFactory(
            settings, NetworkBufferPool(1 << 30, 32 << 10), BlockingWait(), self.storage, owner
        )
        vertex = ExecutionVertexId(JobVertexId(b"v" * 16), 0)
        producer = ExecutionAttemptId(JobId(b"j" * 16), vertex, 0)
        partition_id = ResultPartitionId(IntermediateDataSetId(b"d" * 16), 0, producer)
        self.partition = factory.create(
            ResultPartitionDescriptor(partition_id, ResultPartitionType.BLOCKING, CONSUMERS)
        )
        self.writer = create_record_writer(
            self.partition, KeyGroupSelector(CONSUMERS, 4 * CONSUMERS), -1, SystemClock(), settings
        )

    def write(self, batches: list[RecordBatch], turns: int) -> None:
        """Write everything and have it on the disk."""
        for _ in range(turns):
            for batch in batches:
                self.writer.emit(batch)
        self.writer.finish()
        for file in self.directories.files():
            on_file(file, os.fdatasync)

    def read(self) -> int:
        """Read every subpartition; return the rows."""
        return sum(_drain(self.partition.create_view, index) for index in range(CONSUMERS))

    def close(self) -> None:
        """Delete everything."""
        self.writer.close()
        self.partition.release()
        self.storage.close()


def _drain(
    create_view: Callable[[int, Callable[[], None], int], SubpartitionView], index: int
) -> int:
    available = threading.Event()
    view = create_view(index, available.set, LOCAL_SEGMENT_BYTES)
    rows = 0
    while True:
        available.clear()
        element = view.poll(1 << 62)
        if element is None:
            available.wait()
        elif isinstance(element, EventElement):
            view.release()
            return rows
        else:
            rows += element.sealed.row_count  # type: ignore[union-attr]


def on_file(path: Path, action: Callable[[int], None]) -> None:
    descriptor = os.open(path, os.O_RDWR)
    try:
        action(descriptor)
    finally:
        os.close(descriptor)


def forget_pages(descriptor: int) -> None:
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)


def raw_write(path: Path, size: int, block: bytes) -> None:
    with path.open("wb", buffering=0) as file:
        for _ in range(size // len(block)):
            file.write(block)
        os.fdatasync(file.fileno())


def raw_read(path: Path) -> None:
    buffer = bytearray(BLOCK_BYTES)
    with path.open("rb", buffering=0) as file:
        while file.readinto(buffer):
            pass


def timed(action: Callable[[], object]) -> float:
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mib", type=int, default=512)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--codec", default="NONE")
    parser.add_argument("--directory", default=None)
    options = parser.parse_args()
    batches = make_batches(16)
    per_round = sum(pa.ipc.get_record_batch_size(batch.to_arrow()) for batch in batches)
    rounds = max(1, (options.mib << 20) // per_round)
    size = rounds * per_round
    block = os.urandom(BLOCK_BYTES)
    best = dict.fromkeys(("write", "read", "raw write", "raw read"), float("inf"))
    with tempfile.TemporaryDirectory(dir=options.directory) as name:
        for _ in range(options.turns):
            raw = Path(name) / "raw"
            took = {"raw write": timed(lambda raw=raw: raw_write(raw, size, block))}
            on_file(raw, forget_pages)
            took["raw read"] = timed(lambda raw=raw: raw_read(raw))
            raw.unlink()
            ours = OurTurn(Path(name), options.codec)
            took["write"] = timed(lambda ours=ours: ours.write(batches, rounds))
            for file in ours.directories.files():
                on_file(file, forget_pages)
            rows: list[int] = []
            took["read"] = timed(lambda ours=ours, rows=rows: rows.append(ours.read()))
            assert rows == [rounds * len(batches) * ROWS]
            ours.close()
            best = {what: min(best[what], took[what]) for what in best}
            shown = ", ".join(f"{what} {size / took[what] / 1e6:.0f} MB/s" for what in took)
            print(f"turn: {shown}")
    figures = {f"{what} MB/s": round(size / seconds / 1e6) for what, seconds in best.items()}
    for what in ("write", "read"):
        figures[f"{what} share of the disk"] = round(best[f"raw {what}"] / best[what], 2)
    record_result("sort_merge", {"codec": options.codec, "mib": size >> 20, **figures})


if __name__ == "__main__":
    main()
