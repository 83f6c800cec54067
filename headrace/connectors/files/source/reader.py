"""FileReader: reads its splits in turn, a batch per poll. Source: Flink FileSourceReader."""

from collections import deque
from collections.abc import Sequence
from typing import Final

from headrace.connectors.files.formats.splits import (
    CutRecords,
    FileReaderFormat,
    FileSplit,
    decode_file_split,
)
from headrace.functions.runtime_context import SubtaskContext
from headrace.functions.source import (
    InputStatus,
    SourceOutput,
    SourceSplit,
    SplitReader,
    encode_split,
)

AHEAD_BYTES: Final = 1 << 20
"""Bytes left of a split at which the next one is requested: a request takes about as long as reading them.

An earlier request would keep the split from idle readers.
"""


class FileReader(SplitReader):
    """Requests a split when it has none, or nearly none; it has several only after a restart with fewer readers.

    It requests ahead only after its first split, so that the first reader does not take all of a few files.

    Each file is opened at its first turn, and closed at its end. Each split has a watermark of its own. The last
    split's watermark stays until there is another split: a reader without work still reports its progress, and becomes
    idle in time.
    """

    def __init__(self, reader_format: FileReaderFormat, context: SubtaskContext) -> None:
        super().__init__(context)
        self._format = reader_format
        self._splits: deque[FileSplit] = deque()
        # What was asked for while another was read, and begins when that has ended.
        self._ahead: deque[FileSplit] = deque()
        # Splits that the output does not know yet.
        self._new: list[str] = []
        self._last_ended: str | None = None
        self._paused: frozenset[str] = frozenset()
        self._records: dict[str, CutRecords] = {}
        self._has_asked = False
        self._has_ended_one = False
        self._pending_bytes = 0

    def add_splits(self, splits: Sequence[SourceSplit]) -> None:
        added = [decode_file_split(split) for split in splits]
        if self._splits:
            self._ahead.extend(added)
        else:
            self._begin(added)
        self._has_asked = False
        self._count_pending()

    def poll_next(self, output: SourceOutput) -> InputStatus:
        """Emit the records of the next chunk of the next file that is not paused."""
        if self._ahead and not self._splits:
            self._begin([self._ahead.popleft()])
        self._register_new(output)
        if not self._splits:
            if self.has_no_more_splits:
                return InputStatus.END_OF_INPUT
            self._ask()
            return InputStatus.NOTHING_AVAILABLE
        for _ in range(len(self._splits)):
            split = self._splits[0]
            if split.split_id not in self._paused:
                self._read(split, output)
                self._count_pending()
                return InputStatus.MORE_AVAILABLE
            self._splits.rotate(-1)
        return InputStatus.NOTHING_AVAILABLE

    def pause_or_resume_splits(self, to_pause: Sequence[str], to_resume: Sequence[str]) -> None:
        self._paused = self._paused.union(to_pause).difference(to_resume)
        self.context.wake()

    def snapshot_state(self, checkpoint_id: int) -> Sequence[bytes]:
        splits = [*map(self._as_read, self._splits), *self._ahead]
        return [encode_split(split.encoded()) for split in splits]

    def pending_byte_count(self) -> int | None:
        return self._pending_bytes

    def close(self) -> None:
        while self._records:
            _, records = self._records.popitem()
            records.close()

    def split_ended(self, split: FileSplit) -> None:
        """Handle the end of a split, after its last record was emitted."""

    def _begin(self, splits: Sequence[FileSplit]) -> None:
        self._splits.extend(splits)
        self._new += [split.split_id for split in splits]

    def _ask(self) -> None:
        if not self._has_asked and not self.has_no_more_splits:
            self._has_asked = True
            self.request_split()

    def _ask_ahead(self, split: FileSplit) -> None:
        """Request the next split when little of the only one is left."""
        is_only = len(self._splits) == 1 and not self._ahead
        if is_only and self._has_ended_one and self._unread_bytes(split) <= AHEAD_BYTES:
            self._ask()

    def _unread_bytes(self, split: FileSplit) -> int:
        """Return the bytes of a split that are still to be read: all of them if its format does not know."""
        records = self._records.get(split.split_id)
        unread_bytes = None if records is None else records.unread_bytes
        return split.length if unread_bytes is None else unread_bytes

    def _count_pending(self) -> None:
        self._pending_bytes = sum(map(self._unread_bytes, (*self._splits, *self._ahead)))

    def _register_new(self, output: SourceOutput) -> None:
        """Register new splits, which hold the watermark back; release the ended split that was kept."""
        new, self._new = self._new, []
        if new and self._last_ended is not None:
            output.release_split(self._last_ended)
            self._last_ended = None
        for split_id in new:
            output.add_split(split_id)

    def _read(self, split: FileSplit, output: SourceOutput) -> None:
        """Emit a chunk of the first split, which then becomes the last in turn, or ends."""
        split_id = split.split_id
        records = self._records.get(split_id)
        if records is None:
            opened = self._format.open(split, self.context.types.output)
            records = CutRecords(opened, split)
            self._records[split_id] = records
        self._ask_ahead(split)
        batch = records.next_batch(output.rows_wanted)
        if batch is None:
            del self._records[split_id]
            records.close()
            self._splits.popleft()
            self._has_ended_one = True
            self.split_ended(split)
            if self._splits:
                output.release_split(split_id)
            else:
                self._last_ended = split_id
            return
        if batch.num_rows:
            output.emit(batch, split_id)
        self._splits.rotate(-1)

    def _as_read(self, split: FileSplit) -> FileSplit:
        records = self._records.get(split.split_id)
        return split if records is None else records.as_read
