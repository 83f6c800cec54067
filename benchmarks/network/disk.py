"""How much of the disk's own speed do stored partitions reach, writing and reading?

In one directory and one run, turn by turn: a sort-merge partition, a bounded blocking one, and a plain file of as many
bytes, written in pieces of 8 MB and read in pieces of 1 MB, one after the other. Nothing is compressed, so that both
sides move the same bytes. Writing counts until fsync has returned, for both; the time without it is what tasks see, as
neither Headrace nor Flink waits for the disk. Before reading, the pages of each file are dropped from the page cache
(posix_fadvise), for both, so that it is the disk that is read; where a virtual machine's host keeps a cache of its
own, that one stays. Reading again, from the page cache, is measured too.
The host may also have taken back memory that was free, and gives it again slowly, at a hundredth of the speed of a
copy, to whoever comes first; so memory for both is touched before each side's turn, and the sides begin in turn.
The partition is read by one gate with all its channels, in the same process, to the last row.

Where something else uses the processors, a plain file, which needs hardly any, seems faster than it is beside ours,
which sorts, checks and decodes; so the processor time of the whole process per GB stands beside the rates, for both.
"""

import mmap
import os
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.network.endpoints import (
    DataPlane,
    Feeder,
    RowMaker,
    Window,
    batches_of,
    open_gate,
    open_writer,
)
from benchmarks.network.figures import paired_share_percent
from headrace.core.shuffle_descriptors import ResultPartitionType

ROW_BYTES = 200
WRITE_PIECE_BYTES, READ_PIECE_BYTES = 8 << 20, 1 << 20
KINDS = (("bounded blocking", 4), ("sort-merge", 8), ("sort-merge", 512))


def measure_disk(
    directory: str | None, size_bytes: int, repeats: int, advance: Callable[[str], None]
) -> dict[str, Any]:
    """MB per second of each kind, and its share of a plain file's."""
    found: list[dict[str, Any]] = []
    for kind, channels in KINDS:
        turns: list[dict[str, float]] = []
        for number in range(repeats):
            turns.append({})
            sides = (
                raw_turn,
                partial(stored_turn, kind=kind, channels=channels),
            )
            for side in sides if number % 2 == 0 else sides[::-1]:
                touch_memory(2 * size_bytes)
                with TemporaryDirectory(dir=directory) as place:
                    turns[-1] |= side(Path(place), size_bytes)
            advance(f"{kind}, {channels} channels")
        found.append({"kind": kind, "channels": channels, **summary(turns)})
    return {"disk": found}


def summary(turns: Sequence[dict[str, float]]) -> dict[str, Any]:
    """The best of each figure, and shares turn by turn."""
    found: dict[str, Any] = {}
    for name in turns[0]:
        best = min if name.endswith("_cpu_s_per_gb") else max
        found[name] = round(best(turn[name] for turn in turns), 2)
    for what in ("write_synced", "write", "read", "read_cached"):
        ours = [turn[f"{what}_mb_per_s"] for turn in turns]
        raw = [turn[f"raw_{what}_mb_per_s"] for turn in turns]
        found[f"{what}_share_percent"] = paired_share_percent(ours, raw)
    return found


def stored_turn(place: Path, size_bytes: int, kind: str, channels: int) -> dict[str, float]:
    """Write and read one partition."""
    sort_from = "1" if kind == "sort-merge" else "100000"
    options = {
        "io.tmp.dirs": str(place),
        "taskmanager.network.compression.codec": "NONE",
        "taskmanager.network.sort-shuffle.min-parallelism": sort_from,
    }
    rows = RowMaker(ROW_BYTES)
    environment, location = DataPlane(options).start("disk")
    try:
        writer = open_writer(environment, 0, channels, -1, ResultPartitionType.BLOCKING)
        feeder = Feeder(writer)
        cpu = [time.process_time()]
        began = time.perf_counter()
        feeder.feed(rows, lambda: writer.bytes_out >= size_bytes)
        writer.finish()
        written = time.perf_counter() - began
        cpu.append(time.process_time())
        files = environment.storage.directories.files()
        for file in files:
            sync(file)
        synced = time.perf_counter() - began
        stored_bytes = sum(file.stat().st_size for file in files)
        seconds: list[float] = []
        for is_cached in (False, True):
            for file in files if not is_cached else ():
                drop_from_cache(file)
            cpu.append(time.process_time())
            began = time.perf_counter()
            gate = open_gate(environment, location, 0, channels, ROW_BYTES)
            count = sum(batch.num_rows for batch in batches_of(gate, Window()))
            seconds.append(time.perf_counter() - began)
            cpu.append(time.process_time())
            gate.close()
            assert count == writer.records_out
        writer.close()
    finally:
        environment.close()
    rates = rates_mb_per_s(stored_bytes, written, synced, *seconds)
    return {
        **{f"{name}_mb_per_s": rate for name, rate in rates.items()},
        "write_cpu_s_per_gb": (cpu[1] - cpu[0]) / stored_bytes * 1e9,
        "read_cpu_s_per_gb": (cpu[3] - cpu[2]) / stored_bytes * 1e9,
    }


def raw_turn(place: Path, size_bytes: int) -> dict[str, float]:
    """Write and read a plain file."""
    file = place / "raw"
    content = memoryview(b"".join(RowMaker(ROW_BYTES).messages()) * 2)[:WRITE_PIECE_BYTES]
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_EXCL)
    try:
        cpu = [time.process_time()]
        began = time.perf_counter()
        for offset in range(0, size_bytes, len(content)):
            os.pwrite(descriptor, content, offset)
        written = time.perf_counter() - began
        cpu.append(time.process_time())
        os.fsync(descriptor)
        synced = time.perf_counter() - began
        drop_from_cache(file)
        cpu.append(time.process_time())
        seconds = [read_through(descriptor, file.stat().st_size)]
        cpu.append(time.process_time())
        seconds.append(read_through(descriptor, file.stat().st_size))
        rates = rates_mb_per_s(file.stat().st_size, written, synced, *seconds)
    finally:
        os.close(descriptor)
        file.unlink()
    return {
        **{f"raw_{name}_mb_per_s": rate for name, rate in rates.items()},
        "raw_write_cpu_s_per_gb": (cpu[1] - cpu[0]) / size_bytes * 1e9,
        "raw_read_cpu_s_per_gb": (cpu[3] - cpu[2]) / size_bytes * 1e9,
    }


def read_through(descriptor: int, size_bytes: int) -> float:
    buffer = bytearray(READ_PIECE_BYTES)
    began = time.perf_counter()
    for offset in range(0, size_bytes, len(buffer)):
        os.preadv(descriptor, [buffer], offset)
    return time.perf_counter() - began


def rates_mb_per_s(
    size_bytes: int, written_s: float, synced_s: float, read_s: float, cached_s: float
) -> dict[str, float]:
    names = ("write", "write_synced", "read", "read_cached")
    return {
        name: size_bytes / seconds / 1e6
        for name, seconds in zip(names, (written_s, synced_s, read_s, cached_s), strict=True)
    }


def touch_memory(size_bytes: int) -> None:
    """Have the machine give so much memory, and take it back at once: what is free then is really there."""
    with mmap.mmap(-1, size_bytes) as block:
        for page in range(0, size_bytes, mmap.PAGESIZE):
            block[page] = 1


def sync(file: Path) -> None:
    """Wait until a file is on the disk."""
    descriptor = os.open(file, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)


def drop_from_cache(file: Path) -> None:
    """Have the page cache forget a file that is on the disk."""
    descriptor = os.open(file, os.O_RDONLY)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(descriptor)
