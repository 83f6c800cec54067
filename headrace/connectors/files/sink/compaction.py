"""Compaction: small files of several checkpoints and subtasks become large ones before anybody sees them.

Complete files wait, hidden, until a bucket has enough of them; then they are merged into one, which gets a name. The
committer does it, so what is merged is read and written by the driver's process.
Source: Flink FileCompactStrategy, FileCompactor, CompactCoordinator.
"""

import shutil
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import msgspec
import pyarrow.parquet as pq

from headrace.connectors.files.paths import place_below
from headrace.connectors.files.sink.committables import Compaction, PendingFile

CONCAT: Final = "concat"
IDENTICAL: Final = "identical"
PARQUET: Final = "parquet"


@dataclass(frozen=True)
class FileCompactor:
    """Method of merging files. Users cannot define their own, as no user code runs where files are committed."""

    name: str
    delimiter: bytes = b""

    @staticmethod
    def concat_file_compactor(file_delimiter: bytes | None = None) -> "FileCompactor":
        """Concatenate files with `file_delimiter` in between: for formats that allow it, such as lines of text."""
        return FileCompactor(CONCAT, file_delimiter or b"")

    @staticmethod
    def identical_file_compactor() -> "FileCompactor":
        """Files stay as they are, and only wait for each other."""
        return FileCompactor(IDENTICAL)

    @staticmethod
    def parquet_file_compactor() -> "FileCompactor":
        """Parquet files become one, with large row groups."""
        return FileCompactor(PARQUET)


@dataclass(frozen=True)
class FileCompactStrategy:
    """Trigger of merging waiting files: `size_threshold` bytes or `checkpoint_count` commits, by bucket."""

    size_threshold: int
    checkpoint_count: int
    thread_count: int

    # PyFlink programs find the builder in here.
    Builder: ClassVar[type["FileCompactStrategyBuilder"]]

    @staticmethod
    def builder() -> "FileCompactStrategyBuilder":
        """Begin; at least one of the two conditions must be set."""
        return FileCompactStrategyBuilder()


class FileCompactStrategyBuilder:
    """Builds a FileCompactStrategy."""

    def __init__(self) -> None:
        self._size_threshold = 0
        self._checkpoint_count = 0
        self._thread_count = 1

    def enable_compaction_on_checkpoint(
        self, num_checkpoints_before_compaction: int
    ) -> "FileCompactStrategyBuilder":
        """Merge after this many checkpoints."""
        if num_checkpoints_before_compaction < 1:
            raise ValueError("compaction needs at least one checkpoint before it")
        self._checkpoint_count = num_checkpoints_before_compaction
        return self

    def set_size_threshold(self, size_threshold: int) -> "FileCompactStrategyBuilder":
        """Merge once this many bytes wait."""
        if size_threshold < 1:
            raise ValueError(f"a size threshold is above 0, not {size_threshold}")
        self._size_threshold = size_threshold
        return self

    def set_num_compact_threads(self, num_compact_threads: int) -> "FileCompactStrategyBuilder":
        """Set the number of files that are merged concurrently."""
        if num_compact_threads < 1:
            raise ValueError("compaction needs at least one thread")
        self._thread_count = num_compact_threads
        return self

    def build(self) -> FileCompactStrategy:
        if not (self._size_threshold or self._checkpoint_count):
            raise ValueError(
                "say when to compact: set_size_threshold(bytes) or enable_compaction_on_checkpoint(count)"
            )
        return FileCompactStrategy(self._size_threshold, self._checkpoint_count, self._thread_count)


FileCompactStrategy.Builder = FileCompactStrategyBuilder


def compaction_of(strategy: FileCompactStrategy, compactor: FileCompactor) -> Compaction:
    """Return both as the settings that travel to the committer."""
    return Compaction(
        compactor.name,
        compactor.delimiter,
        strategy.size_threshold,
        strategy.checkpoint_count,
        strategy.thread_count,
    )


class WaitingFile(msgspec.Struct, frozen=True):
    """A complete file that waits for others; `commit_count`: commits it has seen since it came."""

    file: PendingFile
    commit_count: int = 0


@dataclass(frozen=True)
class CompactionPlan:
    """`groups`: files that become one each, all of one bucket. `waiting`: those that go on waiting."""

    groups: tuple[tuple[PendingFile, ...], ...]
    waiting: tuple[WaitingFile, ...]


def plan_compaction(
    waiting: Iterable[WaitingFile], compaction: Compaction, *, is_input_ended: bool
) -> CompactionPlan:
    """Decide at a commit which files are merged. The same files give the same plan in any order."""
    buckets: dict[str, list[WaitingFile]] = {}
    for one in sorted(waiting, key=lambda one: (one.file.bucket, one.file.hidden_path)):
        buckets.setdefault(one.file.bucket, []).append(one)
    groups: list[tuple[PendingFile, ...]] = []
    rest: list[WaitingFile] = []
    for files in buckets.values():
        full, left = _cut(files, compaction.size_threshold_bytes)
        groups += full
        oldest = 1 + max((one.commit_count for one in left), default=0)
        is_due = is_input_ended or 0 < compaction.checkpoint_count <= oldest
        if left and is_due:
            groups.append(tuple(one.file for one in left))
        else:
            rest += [WaitingFile(one.file, one.commit_count + 1) for one in left]
    return CompactionPlan(tuple(groups), tuple(rest))


def _cut(
    files: Sequence[WaitingFile], threshold: int
) -> tuple[list[tuple[PendingFile, ...]], list[WaitingFile]]:
    """Cut off a group whenever the threshold is reached; return the groups and the remaining files."""
    if not threshold:
        return [], list(files)
    groups: list[tuple[PendingFile, ...]] = []
    gathered: list[WaitingFile] = []
    for one in files:
        gathered.append(one)
        if sum(each.file.size_bytes for each in gathered) >= threshold:
            groups.append(tuple(each.file for each in gathered))
            gathered = []
    return groups, gathered


class Merger:
    """Makes one file of several, on the file system of a sink."""

    def __init__(self, file_system: Any, base_path: str, compaction: Compaction) -> None:
        self._file_system = file_system
        self._base_path = base_path
        self._compaction = compaction

    @property
    def keeps_files(self) -> bool:
        """Return whether files of a group get their own names, as there is nothing to merge."""
        return self._compaction.compactor == IDENTICAL

    def merge_all(self, merges: Sequence[tuple[Sequence[PendingFile], str]]) -> None:
        """Merge each group into the file at its path, which nobody sees yet; `thread_count` at a time."""
        with ThreadPoolExecutor(self._compaction.thread_count, "compaction") as pool:
            for _ in pool.map(lambda one: self._merge(*one), merges):
                pass

    def _merge(self, files: Sequence[PendingFile], target: str) -> None:
        paths = [
            place_below(self._file_system, self._base_path, file.hidden_path) for file in files
        ]
        with self._file_system.open_output_stream(target, compression=None) as output:
            if self._compaction.compactor == PARQUET:
                self._merge_parquet(paths, output)
            else:
                self._concatenate(paths, output)

    def _concatenate(self, paths: Sequence[str], output: Any) -> None:
        for index, path in enumerate(paths):
            if index:
                output.write(self._compaction.delimiter)
            with self._file_system.open_input_stream(path, compression=None) as part:
                shutil.copyfileobj(part, output)

    def _merge_parquet(self, paths: Sequence[str], output: Any) -> None:
        with self._file_system.open_input_file(paths[0]) as first:
            schema = pq.read_schema(first)
        with pq.ParquetWriter(output, schema, compression="zstd") as writer:
            for path in paths:
                with self._file_system.open_input_file(path) as part:
                    for batch in pq.ParquetFile(part).iter_batches(batch_size=65_536):
                        batch.validate(full=True)
                        writer.write_batch(batch)
