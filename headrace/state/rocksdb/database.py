"""One RocksDB on this machine's disk: opened, copied as hard links, closed and deleted.

All databases of a process share one block cache, to which write buffers are charged, so that memory is bounded however
many operators and states there are. There is no write-ahead log: only checkpoints restore a database.
Source: Flink RocksDBMemoryControllerUtils, RocksDBResourceContainer; RocksDB, "Partitioned Index Filters".
"""

import shutil
import tempfile
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from headrace.core.errors import ErrorDomain, HeadraceError

_STATE: Final = "state-"
_TIMERS: Final = "timers-"
_WRITE_BUFFER_SHARE: Final = 0.5
# Of what all write buffers share, one state's may take so much before it is written out. A state has two at most, and
# waits for the disk with both full: without this bound a fast writer fills buffers as fast as others are written out.
_LARGEST_BUFFER_SHARE: Final = 0.25
_SUFFIX_OF_TABLES: Final = ".sst"


class StateBackendMissingError(HeadraceError):
    """The library of the chosen state backend is not installed on this worker."""

    domain, recoverable = ErrorDomain.USER, False


def rocksdict() -> Any:
    """Return the library rocksdict. StateBackendMissingError if it is not installed."""
    try:
        import rocksdict as library
    except ImportError as error:
        raise StateBackendMissingError(
            "'state.backend.type: rocksdb' needs RocksDB on every worker: pip install 'headrace[rocksdb]'"
        ) from error
    return library


_caches: Final[dict[int, Any]] = {}
"""Block caches of this process by size in bytes; there is one, as all jobs of a TaskManager use the same size."""


def shared_memory_usage() -> tuple[int, int]:
    """Return the used bytes and the total bytes of the memory that all databases of this process share. Any thread.

    Both are 0 before the first database is opened.
    """
    caches = dict(_caches)
    return sum(cache.get_usage() for cache in caches.values()), sum(caches)


@lru_cache(maxsize=8)
def _shared_memory(size_bytes: int) -> tuple[Any, Any]:
    """Return the block cache, and the write buffer manager that is charged to it."""
    library = rocksdict()
    cache = _caches[size_bytes] = library.Cache(size_bytes)
    buffers = library.WriteBufferManager.new_write_buffer_manager_with_cache(
        int(size_bytes * _WRITE_BUFFER_SHARE), False, cache
    )
    return cache, buffers


class Database:
    """A RocksDB with one column family per state and timer queue; `directory` belongs to it and is deleted with it."""

    def __init__(self, scratch: str, memory_bytes: int) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="rocksdb-", dir=scratch or None))
        self.path = self.directory / "db"
        self.memory_bytes = memory_bytes
        self._tables: dict[str, Any] = {}
        self._db: Any = None
        self._copies = 0

    def open(self) -> None:
        """Open the database at `path` with its column families, or create it."""
        library = rocksdict()
        options = self._options()
        options.create_if_missing(True)
        _, buffers = _shared_memory(self.memory_bytes)
        options.set_write_buffer_manager(buffers)
        names: list[str] = []
        if (self.path / "CURRENT").exists():
            names = library.Rdict.list_cf(str(self.path), options)
        families = {name: self._options() for name in names if name != "default"}
        self._db = library.Rdict(str(self.path), options, column_families=families or None)
        for name in families:
            self._tables[name] = self._ready(self._db.get_column_family(name))

    @property
    def families(self) -> list[str]:
        """Names of all column families, of states and timers."""
        return list(self._tables)

    def family(self, name: str) -> Any:
        """Return a column family, created if it is absent."""
        table = self._tables.get(name)
        if table is None:
            made = self._db.create_column_family(name, self._options())
            table = self._tables[name] = self._ready(made)
        return table

    def table(self, state_name: str) -> Any:
        """Return the column family of a state, created if it is absent."""
        return self.family(_STATE + state_name)

    def make_timers(self, queue_name: str) -> Any:
        """Return the column family of a timer queue, created if it is absent."""
        return self.family(_TIMERS + queue_name)

    def find_timers(self, queue_name: str) -> Any:
        """Return the column family of a timer queue, or None."""
        return self._tables.get(_TIMERS + queue_name)

    def keep_range(self, begin: bytes, end: bytes) -> None:
        """Delete every row outside of [begin, end)."""
        for table in self._tables.values():
            table.delete_range(b"", begin)
            table.delete_range(end, b"\xff" * 8)

    def hard_links(self) -> Path:
        """Return a directory with hard links to the present files of the database, after a flush."""
        self._copies += 1
        path = self.directory / f"copy-{self._copies}"
        rocksdict().Checkpoint(self._db).create_checkpoint(str(path))
        return path

    def close(self) -> None:
        """Close and delete the database; idempotent. Snapshots that are still being read keep their files."""
        if self._db is not None:
            for table in self._tables.values():
                table.close()
            self._tables.clear()
            self._db.close()
            self._db = None
        shutil.rmtree(self.directory, ignore_errors=True)

    def _options(self) -> Any:
        library = rocksdict()
        options = library.Options(raw_mode=True)
        cache, _ = _shared_memory(self.memory_bytes)
        blocks = library.BlockBasedOptions()
        blocks.set_block_cache(cache)
        # Indexes and filters too, or they would be memory that nobody counts.
        blocks.set_cache_index_and_filter_blocks(True)
        blocks.set_pin_l0_filter_and_index_blocks_in_cache(True)
        blocks.set_bloom_filter(10, False)
        # Filters and indexes in parts of a few kilobytes. The cache has shards of a 64th of it, and what is larger than
        # a shard is not kept: beyond a million keys in a file every access would read that file's whole filter again.
        blocks.set_index_type(library.BlockBasedIndexType.two_level_index_search())
        blocks.set_partition_filters(True)
        blocks.set_pin_top_level_index_and_filter(True)
        options.set_block_based_table_factory(blocks)
        shared_bytes = self.memory_bytes * _WRITE_BUFFER_SHARE
        options.set_write_buffer_size(int(shared_bytes * _LARGEST_BUFFER_SHARE))
        return options

    @staticmethod
    def _ready(table: Any) -> Any:
        write_options = rocksdict().WriteOptions()
        write_options.disable_wal = True
        table.set_write_options(write_options)
        return table


def is_table_file(name: str) -> bool:
    """Return whether a file of a database never changes once it is written, so that checkpoints can share it."""
    return name.endswith(_SUFFIX_OF_TABLES)


def files_of(directory: Path) -> Sequence[Path]:
    """Return the files of a database, in order of name."""
    return sorted(path for path in directory.iterdir() if path.name not in ("LOCK", "LOG"))
