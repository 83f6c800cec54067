"""Compaction: merges small files of several checkpoints and subtasks into large ones before they become visible.

Complete files wait, hidden, until a bucket has enough of them; then they are merged into one, which gets its final
name. The committer merges them, so the driver's process reads and writes their content.
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
    """Method of merging files. Users cannot define their own, because no user code runs in the committer's process."""

    name: str
    delimiter: bytes = b""

    @staticmethod
    def concat_file_compactor(file_delimiter: bytes | None = None) -> "FileCompactor":
        """Concatenate files with `file_delimiter` in between: for formats that allow this, such as lines of text."""
        return FileCompactor(CONCAT, file_delimiter or b"")

    @staticmethod
    def identical_file_compactor() -> "FileCompactor":
        """Keep files unchanged; they only become visible together."""
        return FileCompactor(IDENTICAL)

    @staticmethod
    def parquet_file_compactor() -> "FileCompactor":
        """Merge Parquet files into one with large row groups."""
        return FileCompactor(PARQUET)


@dataclass(frozen=True)
class FileCompactStrategy:
    """Condition for merging waiting files: `size_threshold` bytes or `checkpoint_count` commits, per bucket."""

    size_threshold: int
    checkpoint_count: int
    thread_count: int

    # PyFlink programs find the builder in here.
    Builder: ClassVar[type["FileCompactStrategyBuilder"]]

    @staticmethod
    def builder() -> "FileCompactStrategyBuilder":
        """Return a builder; at least one of the two conditions must be set."""
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
            raise ValueError("compaction needs at least one checkpoint")
        self._checkpoint_count = num_checkpoints_before_compaction
        return self

    def set_size_threshold(self, size_threshold: int) -> "FileCompactStrategyBuilder":
        """Merge once this many bytes wait."""
        if size_threshold < 1:
            raise ValueError(f"the size threshold must be above 0, not {size_threshold}")
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
                "set the condition for compaction: set_size_threshold(bytes) or enable_compaction_on_checkpoint(count)"
            )
        return FileCompactStrategy(self._size_threshold, self._checkpoint_count, self._thread_count)


FileCompactStrategy.Builder = FileCompactStrategyBuilder


def compaction_of(strategy: FileCompactStrategy, compactor: FileCompactor) -> Compaction:
    """Return strategy and compactor as the settings that are sent to the committer."""
    return Compaction(
        compactor.name,
        compactor.delimiter,
        strategy.size_threshold,
        strategy.checkpoint_count,
        strategy.thread_count,
    )


class WaitingFile(msgspec.Struct, frozen=True):
    """A complete file that waits for others; `commit_count`: number of commits since it arrived."""

    file: PendingFile
    commit_count: int = 0


@dataclass(frozen=True)
class CompactionPlan:
    """Result of planning. `groups`: files of one bucket that become one file each.

    `waiting`: files that keep waiting.
    """

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
    """Merges several files into one, on the file system of a sink."""

    def __init__(self, file_system: Any, base_path: str, compaction: Compaction) -> None:
        self._file_system = file_system
        self._base_path = base_path
        self._compaction = compaction

    @property
    def keeps_files(self) -> bool:
        """Return whether files of a group keep their own content and names, so that nothing is merged."""
        return self._compaction.compactor == IDENTICAL

    def merge_all(self, merges: Sequence[tuple[Sequence[PendingFile], str]]) -> None:
        """Merge each group into the file at its path, which is still hidden; `thread_count` at a time."""
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
