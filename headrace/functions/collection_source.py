"""CollectionSource: a bounded source over values that travel inside the program itself."""

from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa

from headrace.core.record_batch import BatchType, RecordBatch
from headrace.core.types.type_info import PickledBytesTypeInfo, TypeInformation
from headrace.functions.source import Boundedness, InputStatus, Source, SourceOutput, SourceReader
from headrace.functions.subtask_context import SubtaskContext

BATCH_ROWS_MAX: Final = 4096


class CollectionSource(Source):
    """Emits `values` in order, on subtask 0 only.

    The values become columns here, on the client: one that does not fit a declared type is a RecordTypeError while
    the program is built. Without a type they are pickled.
    """

    def __init__(self, values: Sequence[Any], type_info: TypeInformation | None = None) -> None:
        self._type = type_info or PickledBytesTypeInfo()
        columns = RecordBatch.of_rows(BatchType(self._type), list(values)).columns()
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, columns.schema) as writer:
            writer.write_batch(columns)
        self._arrow_stream: bytes = sink.getvalue().to_pybytes()

    @property
    def boundedness(self) -> Boundedness:
        return Boundedness.BOUNDED

    @property
    def produced_type(self) -> TypeInformation | None:
        return self._type

    def create_reader(self, context: SubtaskContext) -> SourceReader:
        arrow_stream = self._arrow_stream if context.subtask_index == 0 else None
        return CollectionReader(BatchType(self._type), arrow_stream)


class CollectionReader(SourceReader):
    """Cuts the collection into batches of at most `BATCH_ROWS_MAX` rows; None is an empty share."""

    def __init__(self, batch_type: BatchType, arrow_stream: bytes | None) -> None:
        self._batch_type = batch_type
        self._rest: pa.RecordBatch | None = None
        if arrow_stream is not None:
            self._rest = pa.ipc.open_stream(arrow_stream).read_next_batch()

    def poll_next(self, output: SourceOutput) -> InputStatus:
        if self._rest is None or self._rest.num_rows == 0:
            return InputStatus.END_OF_INPUT
        output.emit(RecordBatch.from_arrow(self._batch_type, self._rest.slice(0, BATCH_ROWS_MAX)))
        self._rest = self._rest.slice(BATCH_ROWS_MAX)
        return InputStatus.MORE_AVAILABLE
