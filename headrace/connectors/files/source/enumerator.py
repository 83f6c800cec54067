"""FileEnumerator: finds files, cuts them into splits and assigns one to each reader that asks.

Source: Flink StaticFileSplitEnumerator, ContinuousFileSplitEnumerator, BlockSplittingRecursiveEnumerator.
"""

import logging
from collections.abc import Sequence
from typing import Final

import msgspec

from headrace.connectors.files.formats.splits import FileSplit, splits_of_file
from headrace.connectors.files.paths import FoundFile, list_files
from headrace.functions.source import (
    SourceSplit,
    SplitEnumerator,
    SplitEnumeratorContext,
)
from headrace.metrics.cluster_names import UNASSIGNED_SPLITS

_LOG = logging.getLogger(__name__)

FILE_ENUMERATOR: Final = "files"


class FileEnumeration(msgspec.Struct, frozen=True, array_like=True):
    """Configuration of a file source's enumerator.

    `discovery_interval_ms`: the interval at which it looks for new files, None for once. `split_size`: bytes above
    which files are split, None for never.
    """

    paths: tuple[str, ...]
    discovery_interval_ms: int | None
    split_size: int | None


class FileEnumeratorState(msgspec.Struct, frozen=True, array_like=True):
    """Unassigned splits, and the identities of all files from which splits were made.

    `known_files` is None before the first listing.
    """

    splits: tuple[SourceSplit, ...]
    known_files: tuple[str, ...] | None


class SplitQueue(SplitEnumerator):
    """Base of enumerators that assign splits in order, one to each reader that asks."""

    def __init__(self, context: SplitEnumeratorContext) -> None:
        self.context = context
        self.splits: list[SourceSplit] = []
        # Readers without work, in the order in which they asked.
        self._waiting: list[int] = []
        context.metric_group.gauge(UNASSIGNED_SPLITS.name, lambda: len(self.splits))

    @property
    def is_complete(self) -> bool:
        """Return whether no more splits will be found."""
        return False

    def handle_split_request(self, subtask_index: int, host: str) -> None:
        if subtask_index not in self._waiting:
            self._waiting.append(subtask_index)
        self.serve()

    def add_splits_back(self, splits: Sequence[SourceSplit], subtask_index: int) -> None:
        self.splits[:0] = splits
        self.serve()

    def add_reader(self, subtask_index: int) -> None:
        # What an earlier attempt asked for is not for this one, unless it asks too.
        self._waiting = [one for one in self._waiting if one != subtask_index]

    def serve(self) -> None:
        """Assign splits to waiting readers; tell them when there can be no more."""
        registered = self.context.registered_readers
        self._waiting = [one for one in self._waiting if one in registered]
        while self._waiting and self.splits:
            self.context.assign_splits(self._waiting.pop(0), [self.splits.pop(0)])
        while self._waiting and self.is_complete:
            self.context.signal_no_more_splits(self._waiting.pop(0))


class FileEnumerator(SplitQueue):
    """Finds each file once, by its name: rows that are appended to it later are not read."""

    def __init__(self, context: SplitEnumeratorContext, enumeration: FileEnumeration) -> None:
        super().__init__(context)
        self._enumeration = enumeration
        self._is_failure_logged = False
        self._known: set[str] | None = None

    def restore(self, state: bytes) -> None:
        restored = msgspec.msgpack.decode(state, type=FileEnumeratorState)
        self.splits = list(restored.splits)
        self._known = None if restored.known_files is None else set(restored.known_files)

    def start(self) -> None:
        if self._known is None or self._is_continuous:
            self._look(0)

    def snapshot_state(self, checkpoint_id: int) -> bytes:
        known = None if self._known is None else tuple(sorted(self._known))
        return msgspec.msgpack.encode(FileEnumeratorState(tuple(self.splits), known))

    @property
    def is_complete(self) -> bool:
        return self._known is not None and not self._is_continuous

    @property
    def _is_continuous(self) -> bool:
        return self._enumeration.discovery_interval_ms is not None

    def _look(self, delay_ms: float) -> None:
        paths = self._enumeration.paths
        self.context.call_async(lambda: list_files(paths), self._found, delay_ms=delay_ms)

    def _found(self, files: Sequence[FoundFile] | None, error: BaseException | None) -> None:
        if files is None:
            assert error is not None
            if self._known is None:
                raise error
            # A listing that fails now and then is made up for by the next one.
            if not self._is_failure_logged:
                self._is_failure_logged = True
                _LOG.warning("looking for new files failed and will be repeated: %s", error)
        else:
            self._is_failure_logged = False
            self._add_new(files)
        if self._enumeration.discovery_interval_ms is not None:
            self._look(self._enumeration.discovery_interval_ms)
        self.serve()

    def _add_new(self, files: Sequence[FoundFile]) -> None:
        known = self._known = set() if self._known is None else self._known
        for file in files:
            if file.identity in known:
                continue
            known.add(file.identity)
            whole = FileSplit(file.root, file.name, 0, file.size, file.size, file.modified_ns)
            for split in splits_of_file(whole, self._enumeration.split_size):
                self.splits.append(split.encoded())


def create_file_enumerator(context: SplitEnumeratorContext, payload: bytes) -> FileEnumerator:
    """Make the enumerator of a FileSource; the entry point of FILE_ENUMERATOR."""
    return FileEnumerator(context, msgspec.msgpack.decode(payload, type=FileEnumeration))
