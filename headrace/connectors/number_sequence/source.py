"""NumberSequenceSource: the integers from start to end, each once."""

from typing import Final

import numpy as np
import pyarrow as pa

from headrace.core.record_batch import BatchType, RecordBatch
from headrace.core.types.type_info import TypeInformation, Types
from headrace.functions.source import Boundedness, InputStatus, Source, SourceOutput, SourceReader
from headrace.functions.subtask_context import SubtaskContext

BATCH_ROWS: Final = 4096


class NumberSequenceSource(Source):
    """Emits `start` to `end`, both included; each subtask a range of its own, in order.

    Source: Flink NumberSequenceSource.

    Example:
        >>> NumberSequenceSource(1, 10).share_of(subtask_index=1, parallelism=4)
        range(3, 6)
    """

    def __init__(self, start: int, end: int) -> None:
        if start > end:
            raise ValueError(f"'start' must be <= 'end', but they are {start} and {end}")
        self._start = start
        self._end = end

    @property
    def boundedness(self) -> Boundedness:
        return Boundedness.BOUNDED

    @property
    def produced_type(self) -> TypeInformation:
        return Types.LONG()

    def share_of(self, subtask_index: int, parallelism: int) -> range:
        """Return the numbers of one subtask; the shares of all subtasks tile the sequence."""
        count = self._end - self._start + 1
        return range(
            self._start + count * subtask_index // parallelism,
            self._start + count * (subtask_index + 1) // parallelism,
        )

    def create_reader(self, context: SubtaskContext) -> SourceReader:
        return NumberSequenceReader(
            self.share_of(context.subtask_index, context.parallelism), context.types.output
        )

    def __repr__(self) -> str:
        return f"NumberSequenceSource({self._start}, {self._end})"


class NumberSequenceReader(SourceReader):
    """Reads one share."""

    def __init__(self, share: range, batch_type: BatchType) -> None:
        self._rest = share
        self._batch_type = batch_type

    def poll_next(self, output: SourceOutput) -> InputStatus:
        """Emit the next numbers."""
        part, self._rest = self._rest[:BATCH_ROWS], self._rest[BATCH_ROWS:]
        if part:
            numbers = pa.array(np.arange(part.start, part.stop, dtype=np.int64))
            columns = pa.RecordBatch.from_arrays([numbers], names=["value"])
            output.emit(RecordBatch.of_columns(self._batch_type, columns))
        return InputStatus.MORE_AVAILABLE if self._rest else InputStatus.END_OF_INPUT
