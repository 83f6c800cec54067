"""CollectionSource: a bounded source over values that are shipped with the program."""

from collections.abc import Sequence
from typing import Any, Final

import msgspec
import pyarrow as pa

from headrace.core.record_batch import BatchType, RecordBatch, stream_bytes
from headrace.core.types.type_info import PickledBytesTypeInfo, TypeInformation
from headrace.functions.runtime_context import SubtaskContext
from headrace.functions.source import Boundedness, InputStatus, Source, SourceOutput, SourceReader

BATCH_ROWS_MAX: Final = 4096


class CollectionSource(Source):
    """Emits `values` in order, on subtask 0 only.

    The values are converted to columns on the client: a value that does not fit a declared type raises RecordTypeError
    while the program is built. Without a type they are pickled.
    """

    def __init__(self, values: Sequence[Any], type_info: TypeInformation | None = None) -> None:
        self._type = type_info or PickledBytesTypeInfo()
        columns = RecordBatch.of_rows(BatchType(self._type), list(values)).columns()
        self._arrow_stream: bytes = stream_bytes(columns.schema, [columns])

    @property
    def boundedness(self) -> Boundedness:
        return Boundedness.BOUNDED

    @property
    def produced_type(self) -> TypeInformation | None:
        return self._type

    def create_reader(self, context: SubtaskContext) -> SourceReader:
        first_row = 0 if context.subtask_index == 0 else None
        return CollectionReader(BatchType(self._type), self._arrow_stream, first_row)


class CollectionReader(SourceReader):
    """Splits the collection from `next_row` on into batches of at most `BATCH_ROWS_MAX` rows; None is an empty share.

    The collection is one split. Its state is the next row, from which any subtask can continue, because all have the
    values.
    """

    def __init__(self, batch_type: BatchType, arrow_stream: bytes, next_row: int | None) -> None:
        self._batch_type = batch_type
        self._arrow_stream = arrow_stream
        self._next_row = next_row
        self._rows: pa.RecordBatch | None = None

    def poll_next(self, output: SourceOutput) -> InputStatus:
        if self._next_row is None:
            return InputStatus.END_OF_INPUT
        rows = self._rows
        if rows is None:
            rows = self._rows = pa.ipc.open_stream(self._arrow_stream).read_next_batch()
        part = rows.slice(self._next_row, min(BATCH_ROWS_MAX, output.rows_wanted))
        if part.num_rows == 0:
            return InputStatus.END_OF_INPUT
        output.emit(RecordBatch.from_arrow(self._batch_type, part))
        self._next_row += part.num_rows
        return InputStatus.MORE_AVAILABLE

    def snapshot_state(self, checkpoint_id: int) -> Sequence[bytes]:
        return () if self._next_row is None else (msgspec.msgpack.encode(self._next_row),)

    def restore_splits(self, splits: Sequence[bytes]) -> None:
        assert len(splits) <= 1
        self._next_row = msgspec.msgpack.decode(splits[0], type=int) if splits else None
