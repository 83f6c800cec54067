"""FileReader: reads its splits one after the other, a batch per poll. Source: Flink FileSourceReader."""

from collections import deque
from collections.abc import Sequence

from headrace.connectors.files.reader_format import FileReaderFormat, FileRecords
from headrace.connectors.files.splits import FileSplit, decode_file_split
from headrace.functions.source import InputStatus, SourceOutput
from headrace.functions.split_enumerator import SourceSplit, encode_split
from headrace.functions.split_reader import SplitReader
from headrace.functions.subtask_context import SubtaskContext


class FileReader(SplitReader):
    """Asks for a split when it has none. Files are opened, and closed, as they are come to."""

    def __init__(self, reader_format: FileReaderFormat, context: SubtaskContext) -> None:
        super().__init__(context)
        self._format = reader_format
        self._splits: deque[FileSplit] = deque()
        self._records: FileRecords | None = None
        self._has_asked = False

    def add_splits(self, splits: Sequence[SourceSplit]) -> None:
        self._splits.extend(decode_file_split(split) for split in splits)
        self._has_asked = False

    def poll_next(self, output: SourceOutput) -> InputStatus:
        """Emit the records of the next chunk of a file."""
        if not self._splits:
            if self.has_no_more_splits:
                return InputStatus.END_OF_INPUT
            if not self._has_asked:
                self._has_asked = True
                self.request_split()
            return InputStatus.NOTHING_AVAILABLE
        if self._records is None:
            self._records = self._format.open(self._splits[0], self.context.types.output)
        batch = self._records.next_batch()
        if batch is None:
            self.close()
            self._splits.popleft()
        elif batch.num_rows:
            output.emit(batch)
        return InputStatus.MORE_AVAILABLE

    def snapshot_state(self, checkpoint_id: int) -> Sequence[bytes]:
        splits = list(self._splits)
        if self._records is not None:
            splits[0] = splits[0].at(self._records.position)
        return [encode_split(split.encoded()) for split in splits]

    def close(self) -> None:
        records, self._records = self._records, None
        if records is not None:
            records.close()
