"""Reads of RocksDB's files where memory is scarce."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.state.rocksdb.database import Database, shared_memory_usage

MEMORY_BYTES = 32 << 20
"""Makes the shards of the block cache as small as they get, 512 KB."""
KEY_COUNT = 500_000
"""The filter of so many is larger than a shard."""
READ_COUNT = 1_000
BLOCK_BYTES = 4_096


def _bytes_read() -> int:
    """Return how many bytes this process has read of files, from the page cache too."""
    first, *_ = Path("/proc/self/io").read_text().splitlines()
    return int(first.removeprefix("rchar: "))


def _bytes_read_by(action: Callable[[], None]) -> int:
    before = _bytes_read()
    action()
    return _bytes_read() - before


@pytest.mark.skipif(not Path("/proc/self/io").exists(), reason="only Linux counts what was read")
def test_an_access_reads_no_whole_filter_of_a_large_file(tmp_path: Path) -> None:
    keys = [number.to_bytes(4, "big") for number in range(KEY_COUNT)]
    chosen = random.Random(7)
    chosen.shuffle(keys)
    database = Database(str(tmp_path), MEMORY_BYTES)
    try:
        database.open()
        table = database.table("count")
        for key in keys:
            table.put(key, key)
        table.flush()
        table.compact_range(b"", b"\xff" * 5)
        assert table.property_value("rocksdb.num-files-at-level6") == "1"
        wanted = chosen.sample(keys, READ_COUNT)

        def read() -> None:
            assert all(table.get(key) == key for key in wanted)

        # Of the data, of the index and of the filter a block each at most.
        assert _bytes_read_by(read) < READ_COUNT * 3 * BLOCK_BYTES
    finally:
        database.close()


def test_the_use_of_the_memory_that_databases_share_is_told(tmp_path: Path) -> None:
    # Of a size that no other test has: the memory of each stays with the process.
    size_bytes = 3 << 20
    _, total_before = shared_memory_usage()
    database = Database(str(tmp_path), size_bytes)
    try:
        database.open()
        used_before, total = shared_memory_usage()
        table = database.table("count")
        for number in range(2_000):
            table.put(number.to_bytes(4, "big"), bytes(100))
        used, _ = shared_memory_usage()
    finally:
        database.close()
    assert total == total_before + size_bytes
    assert used > used_before
